// Sums of arrays, in floats or doubles as long as these hold them.
#pragma once

#include "sums/kernels/doubles.hpp"
#include "sums/kernels/inexact.hpp"
#include "sums/kernels/table.hpp"

namespace afflux::sums {

namespace {

// Vectors that are summed side by side, in half of the registers.
constexpr std::size_t kSideBySide = 4;
static_assert(kStep % (kSideBySide * kLanes) == 0);

// Elements between two looks at the flag. Their sums stay in the nearest cache.
constexpr std::size_t kChunk = 8 * kStep;

// Room for the sums of a chunk, in either form.
using Room = double[kChunk];

// How sums are kept: as doubles; at first those of 16-bit types as floats, which nearly always hold
// them and take half of the time.
template <bool kNarrow>
struct First {
    using Form = Wide;
};
template <>
struct First<true> {
    using Form = Floats;
};

template <typename Form>
inline Form form_of(Floats elements) {
    if constexpr (sizeof(Form) == sizeof(Wide)) {
        return widen(elements);
    } else {
        return elements;
    }
}

// Elements first … first + count - 1 of `arrays`, with sums in one form.
template <Dtype kType, typename Form>
struct Adding {
    static constexpr std::size_t kBytes = codec::bytes_of(kType);

    std::size_t first, count;
    const Arrays& arrays;
    double* room;

    // Returns whether all sums are exact.
    bool add_up() const {
        for (std::size_t i = 0; i < count; i += kSideBySide * kLanes) {
            const auto element = [&](int source, std::size_t v) {
                const auto* from = static_cast<const std::byte*>(arrays.elements[source]);
                return form_of<Form>(floats_of<kType>(from + kBytes * (first + i + v * kLanes)));
            };
            Form sums[kSideBySide];
            for (std::size_t v = 0; v < kSideBySide; ++v) sums[v] = element(0, v);
            for (int r = 1; r < arrays.sources; ++r) {
                for (std::size_t v = 0; v < kSideBySide; ++v) sums[v] += element(r, v);
            }
            for (std::size_t v = 0; v < kSideBySide; ++v) put(place(i + v * kLanes), sums[v]);
        }
        return !inexact(room);
    }

    // Writes the results, and leaves the flag clear.
    void write(const Sum& sum) const {
        const Scaling scaling(sum);
        const int outs = arrays.outs;
        void* const* out = arrays.out;
        for (std::size_t i = 0; i < count; i += kLanes) {
            const auto vector = rounded<kType>(scaling(get<Form>(place(i))));
            for (int k = 0; k < outs; ++k) {
                store(static_cast<std::byte*>(out[k]) + kBytes * (first + i), vector);
            }
        }
        clear_inexact(room);
    }

    std::byte* place(std::size_t i) const {
        return reinterpret_cast<std::byte*>(room) + i / kLanes * sizeof(Form);
    }
};

// Returns whether the form held the sums; if not, nothing is written.
template <Dtype kType, typename Form>
bool sum_in(const Sum& sum, std::size_t first, std::size_t count, const Arrays& arrays,
            double* room) {
    const Adding<kType, Form> adding{first, count, arrays, room};
    if (adding.add_up()) {
        adding.write(sum);
        return true;
    }
    clear_inexact(room);
    return false;
}

template <Dtype kType>
std::size_t sum_arrays(const Sum& sum, std::size_t count, const Arrays& arrays) {
    constexpr bool kNarrow = codec::bytes_of(kType) == 2;
    using Likely = typename First<kNarrow>::Form;
    alignas(64) Room room;
    std::size_t one_by_one = 0;
    for (std::size_t first = 0; first < count;) {
        const std::size_t left = count - first, chunk = left < kChunk ? left : kChunk;
        const std::size_t end = first + chunk;
        if (sum_in<kType, Likely>(sum, first, chunk, arrays, room)) first = end;
        for (; first < end; first += kStep) {
            if (kNarrow && sum_in<kType, Likely>(sum, first, kStep, arrays, room)) continue;
            if (sum_in<kType, Wide>(sum, first, kStep, arrays, room)) continue;
            sum_one_by_one(sum, first, kStep, arrays);
            one_by_one += kStep;
        }
    }
    return one_by_one;
}

}  // namespace

}  // namespace afflux::sums
