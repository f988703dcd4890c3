// Converts blocks to the integers that packets carry, and back.
#pragma once

#include "codec/kernels/floats.hpp"

namespace afflux::codec {

namespace {

// 0 where an element is NaN or infinite, else -1.
template <Dtype kType>
Integers finite(Floats elements) {
    // `from_half` may return these as numbers from 2**16 on.
    constexpr std::int32_t kLimit = kType == Dtype::Float16 ? 143 << 23 : 0x7F800000;
    return (as<Integers>(elements) & 0x7FFFFFFF) < kLimit;
}

template <Dtype kType>
void quantise_one(const Numbers& numbers, const std::byte* from, unsigned exponent,
                  std::int32_t* out) {
    if constexpr (kType == Dtype::Int32) {
        __builtin_memcpy(out, from, kBlock * bytes_of(kType));
    } else if (!exponent) {
        __builtin_memset(out, 0, kBlock * sizeof *out);
    } else if (exponent < kLeastSingle) {
        quantise_block(numbers, from, exponent, out);
    } else {
        const float scale = power_of_two(numbers.scale_power - static_cast<int>(exponent));
        for (std::size_t at = 0; at < kBlock; at += kLanes) {
            const Floats x = load_floats<kType>(from + at * bytes_of(kType));
            store(out + at, nearest(x * scale) & finite<kType>(x));
        }
    }
}

template <Dtype kType>
void quantise_all(const Numbers& numbers, std::size_t blocks, const std::byte* from,
                  const std::uint8_t* exponents, std::int32_t* out) {
    for (std::size_t b = 0; b < blocks; ++b) {
        quantise_one<kType>(numbers, from + b * kBlock * bytes_of(kType), exponents[b],
                            out + b * kBlock);
    }
}

void quantise_kernel(const Numbers& numbers, std::size_t blocks, const void* elements,
                     const std::uint8_t* exponents, std::int32_t* out) {
    const auto* from = static_cast<const std::byte*>(elements);
    with_type(numbers.dtype,
              [&]<Dtype kType>() { quantise_all<kType>(numbers, blocks, from, exponents, out); });
}

template <Dtype kType, bool kDivide>
void dequantise_one(const Numbers& numbers, const std::int32_t* sums, unsigned exponent,
                    std::byte* to) {
    if constexpr (kType == Dtype::Int32) {
        __builtin_memcpy(to, sums, kBlock * bytes_of(kType));
    } else if (!exponent) {
        __builtin_memset(to, 0, kBlock * bytes_of(kType));
    } else if (exponent < kLeastSingle) {
        dequantise_block(numbers, sums, exponent, to);
    } else {
        const Values<kType, kDivide> values(numbers, exponent);
        for (std::size_t at = 0; at < kBlock; at += kLanes) {
            store(to + at * bytes_of(kType), values.of(load<Integers>(sums + at)));
        }
    }
}

template <Dtype kType, bool kDivide>
void dequantise_all(const Numbers& numbers, std::size_t blocks, const std::int32_t* sums,
                    const std::uint8_t* exponents, std::byte* to) {
    for (std::size_t b = 0; b < blocks; ++b) {
        dequantise_one<kType, kDivide>(numbers, sums + b * kBlock, exponents[b],
                                       to + b * kBlock * bytes_of(kType));
    }
}

void dequantise_kernel(const Numbers& numbers, std::size_t blocks, const std::int32_t* sums,
                       const std::uint8_t* exponents, void* out) {
    auto* to = static_cast<std::byte*>(out);
    with_type(numbers.dtype, [&]<Dtype kType>() {
        if (numbers.divisor != 1) {
            dequantise_all<kType, true>(numbers, blocks, sums, exponents, to);
        } else {
            dequantise_all<kType, false>(numbers, blocks, sums, exponents, to);
        }
    });
}

}  // namespace

}  // namespace afflux::codec
