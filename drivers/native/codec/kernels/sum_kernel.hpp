// Sums of blocks that lie in memory.
#pragma once

#include <algorithm>

#include "codec/kernels/scan_kernel.hpp"

namespace afflux::codec {

namespace {

typedef std::uint32_t Words __attribute__((vector_size(4 * kLanes)));

// Vectors that are summed side by side, as many as registers allow.
constexpr std::size_t kSideBySide = kVectors < 8 ? kVectors : 8;

// Each sum calls `write(byte of the block, vector)` for the whole result. It reads everything
// before it is overwritten, so that the result may be in a source.

// Integers, modulo 2**32.
struct IntegerSum {
    static constexpr Dtype kType = Dtype::Int32;

    explicit IntegerSum(const Numbers&) {}

    template <typename Write>
    void operator()(int sources, const std::byte* const* blocks, unsigned, Write write) const {
        for (std::size_t first = 0; first < kBlock; first += kSideBySide * kLanes) {
            Words sums[kSideBySide] = {};
            for (int r = 0; r < sources; ++r) {
                for (std::size_t v = 0; v < kSideBySide; ++v) {
                    sums[v] += load<Words>(blocks[r] + 4 * (first + v * kLanes));
                }
            }
            for (std::size_t v = 0; v < kSideBySide; ++v) {
                write(4 * (first + v * kLanes), sums[v]);
            }
        }
    }
};

// Floats whose greatest exponent is known.
template <Dtype kFloats, bool kDivide>
struct FloatSum {
    static constexpr Dtype kType = kFloats;
    static constexpr std::size_t kBytes = bytes_of(kType);

    explicit FloatSum(const Numbers& numbers_) : numbers(numbers_) {}

    template <typename Write>
    void operator()(int sources, const std::byte* const* blocks, unsigned exponent,
                    Write write) const {
        using Stored = typename Values<kType, kDivide>::Stored;
        if (exponent == wire::kNonFinite || exponent < kLeastSingle) {
            std::byte result[kBlock * kBytes];
            reduce_block(numbers, sources, reinterpret_cast<const void* const*>(blocks), result);
            for (std::size_t at = 0; at < kBlock * kBytes; at += sizeof(Stored)) {
                write(at, load<Stored>(result + at));
            }
            return;
        }
        const float scale = power_of_two(numbers.scale_power - static_cast<int>(exponent));
        const Values<kType, kDivide> values(numbers, exponent);
        for (std::size_t first = 0; first < kBlock; first += kSideBySide * kLanes) {
            Integers sums[kSideBySide] = {};
            for (int r = 0; r < sources; ++r) {
                const std::byte* from = blocks[r] + kBytes * first;
                for (std::size_t v = 0; v < kSideBySide; ++v) {
                    sums[v] += to_integers<kType>(from + kBytes * v * kLanes, scale);
                }
            }
            for (std::size_t v = 0; v < kSideBySide; ++v) {
                write(kBytes * (first + v * kLanes), values.of(sums[v]));
            }
        }
    }

    const Numbers& numbers;
};

// Blocks with the exponents that `scan` gave.
template <typename Sum>
void reduce_sum(const Numbers& numbers, std::size_t blocks, int sources,
                const void* const* elements, const std::uint8_t* const* exponents, void* out,
                std::uint8_t* present) {
    const Sum sum(numbers);
    constexpr std::size_t kBytes = kBlock * bytes_of(Sum::kType);
    for (std::size_t b = 0; b < blocks; ++b) {
        const std::byte* here[kMaxRanks];
        int some = 0;
        unsigned agreed = 0;
        for (int r = 0; r < sources; ++r) {
            const unsigned exponent = exponents[r][b];
            here[some] = static_cast<const std::byte*>(elements[r]) + b * kBytes;
            some += exponent != 0;
            agreed = exponent > agreed ? exponent : agreed;
        }
        present[b] = some != 0;
        if (!some) continue;
        std::byte* to = static_cast<std::byte*>(out) + b * kBytes;
        sum(some, here, agreed, [to](std::size_t at, auto vector) { store(to + at, vector); });
    }
}

// Bytes that are fetched ahead, of all sources together; they fit into the nearest cache.
constexpr std::size_t kUnderWay = 8192;

// Reduces blocks that are read from memory once: scanned, and summed while they are in a cache.
template <typename Sum>
void reduce_sum_in_place(const Numbers& numbers, std::size_t blocks, int sources,
                         void* const* elements) {
    const Sum sum(numbers);
    constexpr std::size_t kBytes = kBlock * bytes_of(Sum::kType);
    const std::size_t ahead =
        kBytes * std::max<std::size_t>(1, kUnderWay / (kBytes * static_cast<std::size_t>(sources)));
    for (std::size_t b = 0; b < blocks; ++b) {
        const std::byte* here[kMaxRanks];
        Greatest<Sum::kType> greatest;
        Greatest<Dtype::Int32> bits;
        for (int r = 0; r < sources; ++r) {
            here[r] = static_cast<const std::byte*>(elements[r]) + b * kBytes;
            fetch<kBytes>(here[r] + ahead);
            greatest.add(here[r]);
            bits.add_bytes(here[r], kBytes);
        }
        // If all are +0 everywhere, so is the result.
        if (!bits.exponent()) continue;
        const auto write = [&](std::size_t at, auto vector) {
            for (int r = 0; r < sources; ++r) {
                store(static_cast<std::byte*>(elements[r]) + b * kBytes + at, vector);
            }
        };
        const unsigned exponent = greatest.exponent();
        if (exponent) {
            sum(sources, here, exponent, write);
        } else {
            for (std::size_t at = 0; at < kBytes; at += sizeof(Words)) write(at, Words{});
        }
    }
}

}  // namespace

}  // namespace afflux::codec
