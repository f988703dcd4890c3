// Finds out which blocks are present, and their exponents.
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

    // The result of `scan` for the block.
    std::uint8_t exponent() const {
        if constexpr (kType == Dtype::Int32) {
            return any(most);
        } else if constexpr (kType == Dtype::Float16) {
            const std::uint32_t magnitude = greatest(most);
            if (magnitude >= 0x7C00) return wire::kNonFinite;
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

template <typename Byte>
constexpr bool kMayWrite = true;
template <typename Byte>
constexpr bool kMayWrite<const Byte> = false;

// The processor itself fetches ahead within a page only. Fetching beyond the end does no harm.
template <std::size_t kBytes>
void fetch(const std::byte* from) {
    for (std::size_t at = 0; at < kBytes; at += 64) __builtin_prefetch(from + at);
}

// With `Byte` not const, absent blocks become +0; with `kCopy`, present ones are copied to `to`.
template <Dtype kType, bool kCopy, typename Byte>
void scan_type(std::size_t blocks, Byte* from, std::byte* to, std::uint8_t* exponents) {
    constexpr std::size_t kBytes = kBlock * bytes_of(kType), kAhead = 3072;
    for (std::size_t b = 0; b < blocks; ++b, from += kBytes) {
        fetch<kBytes>(from + kAhead);
        Greatest<kType> greatest;
        greatest.add(from);
        exponents[b] = greatest.exponent();
        // The block is in the nearest cache now.
        if (exponents[b]) {
            if constexpr (kCopy) __builtin_memcpy(to + b * kBytes, from, kBytes);
        } else if constexpr (kMayWrite<Byte>) {
            Greatest<Dtype::Int32> signs;
            signs.add_bytes(from, kBytes);
            if (signs.exponent()) __builtin_memset(from, 0, kBytes);
        }
    }
}

template <bool kCopy, typename Byte>
void scan_any(Dtype dtype, std::size_t blocks, Byte* from, std::byte* to, std::uint8_t* exponents) {
    with_type(dtype, [&]<Dtype kType>() { scan_type<kType, kCopy>(blocks, from, to, exponents); });
}

void scan_kernel(Dtype dtype, std::size_t blocks, const void* elements, void* out,
                 std::uint8_t* exponents) {
    const auto* from = static_cast<const std::byte*>(elements);
    auto* to = static_cast<std::byte*>(out);
    out ? scan_any<true>(dtype, blocks, from, to, exponents)
        : scan_any<false>(dtype, blocks, from, to, exponents);
}

void scan_clear_kernel(Dtype dtype, std::size_t blocks, void* elements, void* out,
                       std::uint8_t* exponents) {
    auto* from = static_cast<std::byte*>(elements);
    auto* to = static_cast<std::byte*>(out);
    out ? scan_any<true>(dtype, blocks, from, to, exponents)
        : scan_any<false>(dtype, blocks, from, to, exponents);
}

}  // namespace

}  // namespace afflux::codec
