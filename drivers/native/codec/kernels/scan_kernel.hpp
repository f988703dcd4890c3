// Which blocks are present, and their exponents.
#pragma once

#include "codec/kernels/floats.hpp"

namespace afflux::codec {

namespace {

// The greatest magnitude of any number of blocks, as the bits of an element; any bits of int32.
template <Dtype kType>
struct Greatest {
    void add(const std::byte* block) { add_bytes(block, kBlock * bytes_of(kType)); }

    void add_bytes(const std::byte* block, std::size_t bytes) {
        for (std::size_t at = 0; at < bytes; at += sizeof(Lanes)) {
            const Lanes bits = load<Lanes>(block + at);
            if constexpr (kType == Dtype::Int32) {
                most |= bits;
            } else {
                constexpr auto kMagnitude = kNarrow ? 0x7FFF : 0x7FFFFFFF;
                const Lanes magnitude = bits & kMagnitude;
                most = magnitude > most ? magnitude : most;
            }
        }
    }

    // The byte that `scan` gives.
    std::uint8_t exponent() const {
        if constexpr (kType == Dtype::Int32) {
            return any(most);
        } else if constexpr (kType == Dtype::Float16) {
            const std::uint32_t magnitude = greatest(most);
            if (magnitude >= 0x7C00) return 255;
            if (magnitude >= 0x400) return static_cast<std::uint8_t>((magnitude >> 10) + 112);
            // A denormal: a normal float32, whose exponent is the place of its first bit.
            if (!magnitude) return 0;
            return static_cast<std::uint8_t>(103 + 31 - __builtin_clz(magnitude));
        } else {
            const std::uint32_t magnitude = greatest(most), field = magnitude >> kFraction;
            return static_cast<std::uint8_t>(magnitude && !field ? 1 : field);
        }
    }

    static constexpr bool kNarrow = bytes_of(kType) == 2;
    static constexpr int kFraction = kNarrow ? 7 : 23;
    using Lanes = decltype([] {
        if constexpr (kNarrow) {
            return Narrow{};
        } else {
            return Integers{};
        }
    }());
    Lanes most{};
};

template <Dtype kType>
void scan_type(std::size_t blocks, const std::byte* from, std::uint8_t* exponents) {
    for (std::size_t b = 0; b < blocks; ++b, from += kBlock * bytes_of(kType)) {
        Greatest<kType> greatest;
        greatest.add(from);
        exponents[b] = greatest.exponent();
    }
}

template <Dtype kType>
void scan_copy_type(std::size_t blocks, const std::byte* from, std::byte* to,
                    std::uint8_t* exponents) {
    constexpr std::size_t kBytes = kBlock * bytes_of(kType);
    for (std::size_t b = 0; b < blocks; ++b, from += kBytes, to += kBytes) {
        Greatest<kType> greatest;
        greatest.add(from);
        exponents[b] = greatest.exponent();
        // The block is in the nearest cache now.
        if (exponents[b]) __builtin_memcpy(to, from, kBytes);
    }
}

void scan_kernel(Dtype dtype, std::size_t blocks, const void* elements, std::uint8_t* exponents) {
    const auto* from = static_cast<const std::byte*>(elements);
    switch (dtype) {
        case Dtype::Int32:
            return scan_type<Dtype::Int32>(blocks, from, exponents);
        case Dtype::Float32:
            return scan_type<Dtype::Float32>(blocks, from, exponents);
        case Dtype::Float16:
            return scan_type<Dtype::Float16>(blocks, from, exponents);
        case Dtype::Bfloat16:
            return scan_type<Dtype::Bfloat16>(blocks, from, exponents);
    }
}

void scan_copy_kernel(Dtype dtype, std::size_t blocks, const void* elements, void* out,
                      std::uint8_t* exponents) {
    const auto* from = static_cast<const std::byte*>(elements);
    auto* to = static_cast<std::byte*>(out);
    switch (dtype) {
        case Dtype::Int32:
            return scan_copy_type<Dtype::Int32>(blocks, from, to, exponents);
        case Dtype::Float32:
            return scan_copy_type<Dtype::Float32>(blocks, from, to, exponents);
        case Dtype::Float16:
            return scan_copy_type<Dtype::Float16>(blocks, from, to, exponents);
        case Dtype::Bfloat16:
            return scan_copy_type<Dtype::Bfloat16>(blocks, from, to, exponents);
    }
}

}  // namespace

}  // namespace afflux::codec
