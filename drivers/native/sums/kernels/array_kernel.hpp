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
constexpr std::size_t kChunk = 4 * kStep;

constexpr std::size_t kLine = 64;

// Bytes that are fetched ahead of each source, if they come from memory: those of all fit into the
// nearest cache. The processor itself fetches ahead within a page only, and fetching beyond the end
// does no harm.
inline std::size_t fetched_ahead(int sources) {
    constexpr std::size_t kAll = 4096, kLeast = 512;
    const std::size_t each = kAll / static_cast<std::size_t>(sources);
    return each < kLeast ? kLeast : each;
}

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

template <Dtype kType, typename Form>
inline Form form_of(const std::byte* from) {
    if constexpr (sizeof(Form) != sizeof(Wide)) {
        return floats_of<kType>(from);
    } else if constexpr (kType == Dtype::Float32) {
        return widen_from(from);
    } else {
        return widen(floats_of<kType>(from));
    }
}

// Elements first … first + count - 1 of `arrays`, with sums in one form.
template <Dtype kType, typename Form, bool kFetch>
struct Adding {
    static constexpr std::size_t kBytes = arithmetic::bytes_of(kType);

    std::size_t first, count;
    const Arrays& arrays;
    double* room;

    const std::byte* at(int source, std::size_t i) const {
        return static_cast<const std::byte*>(arrays.elements[source]) + kBytes * (first + i);
    }

    // Returns whether all sums are exact.
    bool add_up() const {
        const std::size_t ahead = fetched_ahead(arrays.sources);
        for (std::size_t i = 0; i < count; i += kSideBySide * kLanes) {
            const auto element = [&](int source, std::size_t v) {
                const std::byte* from = at(source, i + v * kLanes);
                if constexpr (kFetch) {
                    if (kBytes * v * kLanes % (2 * kLine) == 0) __builtin_prefetch(from + ahead);
                }
                return form_of<kType, Form>(from);
            };
            Form sums[kSideBySide];
            for (std::size_t v = 0; v < kSideBySide; ++v) sums[v] = element(0, v);
            for (int r = 1; r < arrays.sources; ++r) {
                for (std::size_t v = 0; v < kSideBySide; ++v) sums[v] += element(r, v);
            }
            for (std::size_t v = 0; v < kSideBySide; ++v) put(place(i + v * kLanes), sums[v]);
        }
        return exact();
    }

    // Whether additions have lost nothing since the flag was cleared.
    bool exact() const { return !inexact(room); }

    // Adds and rounds at once, where rounding sets no flag. Returns whether all sums are exact; if
    // not, what it has written means nothing.
    bool add_and_round(const Sum& sum, std::byte* out) const {
        switch (arrays.sources) {
            case 4:
                return add_and_round_some<4>(sum, out);
            case 8:
                return add_and_round_some<8>(sum, out);
            default:
                return add_and_round_some<0>(sum, out);
        }
    }

    template <int kSources>
    [[gnu::always_inline]] bool add_and_round_some(const Sum& sum, std::byte* out) const {
        const Scaling scaling(sum);
        const int sources = kSources ? kSources : arrays.sources;
        const std::byte* from[kSources ? kSources : arithmetic::kMaxRanks];
        for (int r = 0; r < sources; ++r) from[r] = at(r, 0);
        const std::size_t ahead = fetched_ahead(sources);
        for (std::size_t i = 0; i < count; i += kSideBySide * kLanes) {
            Form sums[kSideBySide];
            const auto element = [&](int r, std::size_t v) {
                return form_of<kType, Form>(from[r] + kBytes * (i + v * kLanes));
            };
            for (std::size_t v = 0; v < kSideBySide; ++v) sums[v] = element(0, v);
            for (int r = 1; r < sources; ++r) {
                for (std::size_t v = 0; v < kSideBySide; ++v) sums[v] += element(r, v);
            }
            for (std::size_t line = 0; kFetch && line < kBytes * kSideBySide * kLanes;
                 line += kLine) {
                for (int r = 0; r < sources; ++r)
                    __builtin_prefetch(from[r] + kBytes * i + ahead + line);
            }
            for (std::size_t v = 0; v < kSideBySide; ++v) {
                store(out + kBytes * (i + v * kLanes), rounded<kType>(scaling(sums[v])));
            }
        }
        return exact();
    }

    // Copies results to all arrays for them but the one that has them.
    void spread(const std::byte* from) const {
        for (int k = 0; k < arrays.outs; ++k) {
            std::byte* to = static_cast<std::byte*>(arrays.out[k]) + kBytes * first;
            if (to == from) continue;
            for (std::size_t byte = 0; byte < kBytes * count; byte += sizeof(Floats)) {
                store(to + byte, load<Floats>(from + byte));
            }
        }
    }

    // Writes the results, and leaves the flag clear.
    void write(const Sum& sum) const {
        const Scaling scaling(sum);
        const int outs = arrays.outs;
        void* const* out = arrays.out;
        const int sources = arrays.sources;
        const std::size_t ahead = fetched_ahead(sources) + kLine;
        for (std::size_t i = 0; i < count; i += kLanes) {
            if (kFetch && kBytes * i % (2 * kLine) == 0) {
                for (int r = 0; r < sources; ++r) __builtin_prefetch(at(r, i) + ahead);
            }
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

// The processor's own addition rounds the sum of two float32 correctly. Scaling keeps that, unless
// the sum was too large before, or is too small for all of its bits afterwards: then this returns
// false, and has written nothing.
template <bool kFetch>
bool sum_pairs(const Sum& sum, std::size_t first, std::size_t count, const Arrays& arrays,
               double* room) {
    const Adding<Dtype::Float32, Floats, kFetch> adding{first, count, arrays, room};
    const Scaling scaling(sum);
    const bool two = arrays.sources == 2;
    const std::size_t ahead = fetched_ahead(1);
    const auto total = [&](std::size_t i) {
        const std::byte* from = adding.at(0, i);
        if constexpr (kFetch) __builtin_prefetch(from + ahead);
        Floats x = load<Floats>(from);
        if (two) {
            const std::byte* other = adding.at(1, i);
            if constexpr (kFetch) __builtin_prefetch(other + ahead);
            x += load<Floats>(other);
        }
        return x;
    };
    const auto write = [&](std::size_t i, Floats x) {
        const Floats result = one_nan(x);
        for (int k = 0; k < arrays.outs; ++k) {
            store(static_cast<std::byte*>(arrays.out[k]) + sizeof(float) * (first + i), result);
        }
    };
    if (sum.scale == 0) {
        for (std::size_t i = 0; i < count; i += kLanes) write(i, scaling.complete(total(i)));
        clear_inexact(room);
        return true;
    }
    for (std::size_t i = 0; i < count; i += kLanes) put(adding.place(i), scaling(total(i)));
    const bool fine = !inexact<Trouble::OutOfRange>(room);
    clear_inexact(room);
    if (!fine) return false;
    for (std::size_t i = 0; i < count; i += kLanes) write(i, get<Floats>(adding.place(i)));
    return true;
}

// Whether rounding to a type leaves the flag of inexact results as it is.
template <Dtype kType>
constexpr bool is_quiet() {
#if defined(__AVX512F__)
    return kType != Dtype::Float16;
#else
    return kType == Dtype::Bfloat16;
#endif
}

// The first array of results apart from all sources; null if each is one of them.
inline std::byte* apart(const Arrays& arrays) {
    for (int k = 0; k < arrays.outs; ++k) {
        bool source = false;
        for (int r = 0; r < arrays.sources; ++r) source |= arrays.elements[r] == arrays.out[k];
        if (!source) return static_cast<std::byte*>(arrays.out[k]);
    }
    return nullptr;
}

// Returns whether the form held the sums; if not, no source has changed.
template <Dtype kType, typename Form, bool kFetch>
bool sum_in(const Sum& sum, std::size_t first, std::size_t count, const Arrays& arrays,
            double* room) {
    const Adding<kType, Form, kFetch> adding{first, count, arrays, room};
    if constexpr (is_quiet<kType>()) {
        std::byte* free = apart(arrays);
        std::byte* out =
            free ? free + arithmetic::bytes_of(kType) * first : reinterpret_cast<std::byte*>(room);
        if (adding.add_and_round(sum, out)) {
            adding.spread(out);
            return true;
        }
    } else if (adding.add_up()) {
        adding.write(sum);
        return true;
    }
    clear_inexact(room);
    return false;
}

template <Dtype kType, bool kFetch>
std::size_t sum_arrays(const Sum& sum, std::size_t count, const Arrays& arrays) {
    constexpr bool kNarrow = arithmetic::bytes_of(kType) == 2;
    using Likely = typename First<kNarrow>::Form;
    alignas(64) Room room;
    std::size_t one_by_one = 0;
    const bool pairs = kType == Dtype::Float32 && arrays.sources <= 2;
    for (std::size_t first = 0; first < count;) {
        const std::size_t left = count - first;
        // Without scaling, nothing can go wrong on the way.
        const std::size_t most = pairs && sum.scale == 0 ? left : kChunk;
        const std::size_t chunk = left < most ? left : most;
        const std::size_t end = first + chunk;
        if (pairs && sum_pairs<kFetch>(sum, first, chunk, arrays, room)) {
            first = end;
            continue;
        }
        if (sum_in<kType, Likely, kFetch>(sum, first, chunk, arrays, room)) first = end;
        for (; first < end; first += kStep) {
            if (kNarrow && sum_in<kType, Likely, false>(sum, first, kStep, arrays, room)) continue;
            if (sum_in<kType, Wide, false>(sum, first, kStep, arrays, room)) continue;
            sum_one_by_one(sum, first, kStep, arrays);
            one_by_one += kStep;
        }
    }
    return one_by_one;
}

}  // namespace

}  // namespace afflux::sums
