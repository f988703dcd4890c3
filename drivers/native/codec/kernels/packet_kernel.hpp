// Blocks to the integers that packets carry, and back.
#pragma once

#include "codec/kernels/scan_kernel.hpp"

namespace afflux::codec {

namespace {

// 0 where an element is NaN or infinite, else -1.
template <Dtype kType>
Integers finite(Floats elements) {
    // `from_half` may give the like of float16 as the numbers from 2**16 on.
    constexpr std::int32_t kLimit = kType == Dtype::Float16 ? 143 << 23 : 0x7F800000;
    return (as<Integers>(elements) & 0x7FFFFFFF) < kLimit;
}

// Writes vectors near, or past the caches where the address allows it.
template <bool kFar>
struct Writer {
    template <typename Vector>
    static void write(void* to, Vector vector) {
        if constexpr (kFar) {
            store_far(to, vector);
        } else {
            store(to, vector);
        }
    }
};

template <Dtype kType, bool kFar>
void quantise_one(const Numbers& numbers, const std::byte* from, unsigned exponent,
                  std::int32_t* out) {
    if constexpr (kType == Dtype::Int32) {
        for (std::size_t at = 0; at < kBlock; at += kLanes) {
            Writer<kFar>::write(out + at, load<Integers>(from + 4 * at));
        }
    } else if (!exponent) {
        for (std::size_t at = 0; at < kBlock; at += kLanes) {
            Writer<kFar>::write(out + at, Integers{});
        }
    } else if (exponent < kLeastSingle) {
        quantise_block(numbers, from, exponent, out);
    } else {
        const float scale = power_of_two(numbers.scale_power - static_cast<int>(exponent));
        for (std::size_t at = 0; at < kBlock; at += kLanes) {
            const Floats x = load_floats<kType>(from + at * bytes_of(kType));
            Writer<kFar>::write(out + at, nearest(x * scale) & finite<kType>(x));
        }
    }
}

template <Dtype kType, bool kFar>
void quantise_row(const Numbers& numbers, std::size_t blocks, const std::byte* from,
                  const std::uint8_t* exponents, std::int32_t* out, std::size_t next_blocks,
                  std::uint8_t* next_exponents) {
    constexpr std::size_t kBytes = kBlock * bytes_of(kType);
    const std::byte* next = from + blocks * kBytes;
    for (std::size_t b = 0; b < blocks || b < next_blocks; ++b) {
        if (b < next_blocks) {
            Greatest<kType> greatest;
            greatest.add(next + b * kBytes);
            next_exponents[b] = greatest.exponent();
        }
        if (b < blocks) {
            quantise_one<kType, kFar>(numbers, from + b * kBytes, exponents[b], out + b * kBlock);
        }
    }
    if constexpr (kFar) finish_far();
}

template <Dtype kType, bool kDivide, bool kFar>
void dequantise_row(const Numbers& numbers, std::size_t blocks, const std::int32_t* sums,
                    const std::uint8_t* exponents, std::byte* to) {
    for (std::size_t b = 0; b < blocks; ++b, sums += kBlock, to += kBlock * bytes_of(kType)) {
        const unsigned exponent = exponents[b];
        if constexpr (kType == Dtype::Int32) {
            for (std::size_t at = 0; at < kBlock; at += kLanes) {
                Writer<kFar>::write(to + 4 * at, load<Integers>(sums + at));
            }
        } else if (!exponent) {
            __builtin_memset(to, 0, kBlock * bytes_of(kType));
        } else if (exponent < kLeastSingle) {
            dequantise_block(numbers, sums, exponent, to);
        } else {
            const Values<kType, kDivide> values(numbers, exponent);
            for (std::size_t at = 0; at < kBlock; at += kLanes) {
                Writer<kFar>::write(to + at * bytes_of(kType),
                                    values.of(load<Integers>(sums + at)));
            }
        }
    }
    if constexpr (kFar) finish_far();
}

// Whether vectors at `to` may be stored past the caches.
inline bool may_go_far(const void* to, bool far) {
    return far && reinterpret_cast<std::uintptr_t>(to) % sizeof(Integers) == 0;
}

template <Dtype kType>
void quantise_type(const Numbers& numbers, std::size_t blocks, const std::byte* from,
                   const std::uint8_t* exponents, std::int32_t* out, bool far,
                   std::size_t next_blocks, std::uint8_t* next_exponents) {
    if (may_go_far(out, far)) {
        quantise_row<kType, true>(numbers, blocks, from, exponents, out, next_blocks,
                                  next_exponents);
    } else {
        quantise_row<kType, false>(numbers, blocks, from, exponents, out, next_blocks,
                                   next_exponents);
    }
}

void quantise_kernel(const Numbers& numbers, std::size_t blocks, const void* elements,
                     const std::uint8_t* exponents, std::int32_t* out, bool far,
                     std::size_t next_blocks, std::uint8_t* next_exponents) {
    const auto* from = static_cast<const std::byte*>(elements);
    switch (numbers.dtype) {
        case Dtype::Int32:
            return quantise_type<Dtype::Int32>(numbers, blocks, from, exponents, out, far,
                                               next_blocks, next_exponents);
        case Dtype::Float32:
            return quantise_type<Dtype::Float32>(numbers, blocks, from, exponents, out, far,
                                                 next_blocks, next_exponents);
        case Dtype::Float16:
            return quantise_type<Dtype::Float16>(numbers, blocks, from, exponents, out, far,
                                                 next_blocks, next_exponents);
        case Dtype::Bfloat16:
            return quantise_type<Dtype::Bfloat16>(numbers, blocks, from, exponents, out, far,
                                                  next_blocks, next_exponents);
    }
}

template <Dtype kType, bool kDivide>
void dequantise_type(const Numbers& numbers, std::size_t blocks, const std::int32_t* sums,
                     const std::uint8_t* exponents, std::byte* to, bool far) {
    if (may_go_far(to, far)) {
        dequantise_row<kType, kDivide, true>(numbers, blocks, sums, exponents, to);
    } else {
        dequantise_row<kType, kDivide, false>(numbers, blocks, sums, exponents, to);
    }
}

template <Dtype kType>
void dequantise_floats(const Numbers& numbers, std::size_t blocks, const std::int32_t* sums,
                       const std::uint8_t* exponents, std::byte* to, bool far) {
    if (numbers.divisor != 1) {
        dequantise_type<kType, true>(numbers, blocks, sums, exponents, to, far);
    } else {
        dequantise_type<kType, false>(numbers, blocks, sums, exponents, to, far);
    }
}

void dequantise_kernel(const Numbers& numbers, std::size_t blocks, const std::int32_t* sums,
                       const std::uint8_t* exponents, void* out, bool far) {
    auto* to = static_cast<std::byte*>(out);
    switch (numbers.dtype) {
        case Dtype::Int32:
            return dequantise_type<Dtype::Int32, false>(numbers, blocks, sums, exponents, to, far);
        case Dtype::Float32:
            return dequantise_floats<Dtype::Float32>(numbers, blocks, sums, exponents, to, far);
        case Dtype::Float16:
            return dequantise_floats<Dtype::Float16>(numbers, blocks, sums, exponents, to, far);
        case Dtype::Bfloat16:
            return dequantise_floats<Dtype::Bfloat16>(numbers, blocks, sums, exponents, to, far);
    }
}

}  // namespace

}  // namespace afflux::codec
