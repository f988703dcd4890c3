// Sums of arrays, in doubles as long as these hold them.
#pragma once

#include "sums/kernels/doubles.hpp"
#include "sums/kernels/inexact.hpp"
#include "sums/kernels/table.hpp"

namespace afflux::sums {

namespace {

// Vectors that are summed side by side, in half of the registers.
constexpr std::size_t kSideBySide = 4;
static_assert(kStep % (kSideBySide * kLanes) == 0);

// Elements between two looks at the flag. Their doubles stay in the nearest cache.
constexpr std::size_t kChunk = 8 * kStep;

inline double power_of_half(int power) {
    return as<double>(static_cast<std::uint64_t>(1023 - power) << 52);
}

// Returns whether all sums are exact.
template <Dtype kType>
inline bool add_up(std::size_t first, std::size_t count, const Arrays& arrays, double* sums) {
    constexpr std::size_t kBytes = codec::bytes_of(kType);
    for (std::size_t i = 0; i < count; i += kSideBySide * kLanes) {
        const auto from = [&](int source) {
            return static_cast<const std::byte*>(arrays.elements[source]) + kBytes * (first + i);
        };
        Wide wide[kSideBySide];
        for (std::size_t v = 0; v < kSideBySide; ++v) {
            wide[v] = widen(floats_of<kType>(from(0) + kBytes * kLanes * v));
        }
        for (int r = 1; r < arrays.sources; ++r) {
            for (std::size_t v = 0; v < kSideBySide; ++v) {
                wide[v] += widen(floats_of<kType>(from(r) + kBytes * kLanes * v));
            }
        }
        for (std::size_t v = 0; v < kSideBySide; ++v) {
            store_wide(sums + i + kLanes * v, wide[v]);
        }
    }
    return !inexact(sums);
}

// Calls `write(byte, vector)` with the results, and leaves the flag clear.
template <Dtype kType, typename Write>
inline void round_all(const Sum& sum, std::size_t count, const double* sums, Write write) {
    const double factor = power_of_half(sum.scale);
    // Adding +0 changes -0 only. Adding -0 changes nothing.
    const double missing = sum.all_present ? -0.0 : 0.0;
    for (std::size_t i = 0; i < count; i += kLanes) {
        Wide wide = load_wide(sums + i);
        wide.low = (wide.low + missing) * factor;
        wide.high = (wide.high + missing) * factor;
        write(codec::bytes_of(kType) * i, rounded<kType>(wide));
    }
    clear_inexact(sums);
}

template <Dtype kType>
inline void write_all(const Sum& sum, std::size_t first, std::size_t count, const Arrays& arrays,
                      const double* sums) {
    constexpr std::size_t kBytes = codec::bytes_of(kType);
    round_all<kType>(sum, count, sums, [&](std::size_t at, auto vector) {
        for (int k = 0; k < arrays.outs; ++k) {
            store(static_cast<std::byte*>(arrays.out[k]) + kBytes * first + at, vector);
        }
    });
}

template <Dtype kType>
std::size_t sum_arrays(const Sum& sum, std::size_t count, const Arrays& arrays) {
    alignas(64) double sums[kChunk];
    std::size_t one_by_one = 0;
    for (std::size_t first = 0; first < count;) {
        const std::size_t left = count - first, chunk = left < kChunk ? left : kChunk;
        if (add_up<kType>(first, chunk, arrays, sums)) {
            write_all<kType>(sum, first, chunk, arrays, sums);
            first += chunk;
            continue;
        }
        for (const std::size_t end = first + chunk; first < end; first += kStep) {
            clear_inexact(sums);
            if (add_up<kType>(first, kStep, arrays, sums)) {
                write_all<kType>(sum, first, kStep, arrays, sums);
            } else {
                sum_one_by_one(sum, first, kStep, arrays);
                one_by_one += kStep;
            }
        }
        clear_inexact(sums);
    }
    return one_by_one;
}

}  // namespace

}  // namespace afflux::sums
