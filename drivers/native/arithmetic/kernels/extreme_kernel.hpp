// Greatest and least elements, in the order of sortable integers (protocol,
// section 8.4).
#pragma once

#include "arithmetic/kernels/floats.hpp"

namespace afflux::arithmetic {

namespace {

// Integers of an element's own width in the order of the numbers: -0 below +0, NaN wins.
template <Dtype kType, bool kMax>
struct Sortable {
    using Integer = decltype([] {
        if constexpr (bytes_of(kType) == 4) {
            return std::int32_t{};
        } else {
            return std::int16_t{};
        }
    }());
    static constexpr int kTop = 8 * bytes_of(kType) - 1;
    static constexpr Integer kMagnitude = static_cast<Integer>((std::int64_t{1} << kTop) - 1);
    static constexpr Integer kInfinity = kType == Dtype::Float32    ? 0x7F800000
                                         : kType == Dtype::Bfloat16 ? Integer{0x7F80}
                                                                    : Integer{0x7C00};
    static constexpr Integer kNan = kType == Dtype::Float32    ? 0x7FC00000
                                    : kType == Dtype::Bfloat16 ? Integer{0x7FC0}
                                                               : Integer{0x7E00};
    static constexpr Integer kWinner = kMax ? kMagnitude : static_cast<Integer>(~kMagnitude);

    // The order-preserving map of the bits, and its own inverse.
    static Integer flip(Integer bits) {
        return static_cast<Integer>(bits ^ ((bits >> kTop) & kMagnitude));
    }
    static Integer of(Integer bits) {
        if constexpr (kType == Dtype::Int32) return bits;
        return (bits & kMagnitude) > kInfinity ? kWinner : flip(bits);
    }
    static Integer element(Integer sortable) {
        if constexpr (kType == Dtype::Int32) return sortable;
        return sortable == kWinner ? kNan : flip(sortable);
    }
    static Integer best(Integer a, Integer b) { return (kMax ? a > b : a < b) ? a : b; }
};

template <Dtype kType, bool kMax>
struct Extreme {
    static constexpr Dtype kElements = kType;
    using Sort = Sortable<kType, kMax>;
    using Integer = typename Sort::Integer;

    static void of(int sources, const std::byte* const* blocks, std::byte* out) {
        alignas(64) Integer best[kBlock];
        alignas(64) Integer bits[kBlock];
        __builtin_memcpy(best, blocks[0], sizeof best);
        for (std::size_t i = 0; i < kBlock; ++i) best[i] = Sort::of(best[i]);
        for (int r = 1; r < sources; ++r) {
            __builtin_memcpy(bits, blocks[r], sizeof bits);
            for (std::size_t i = 0; i < kBlock; ++i)
                best[i] = Sort::best(best[i], Sort::of(bits[i]));
        }
        for (std::size_t i = 0; i < kBlock; ++i) best[i] = Sort::element(best[i]);
        __builtin_memcpy(out, best, sizeof best);
    }
};

}  // namespace

}  // namespace afflux::arithmetic
