// Sums that are not rounded yet, as blocks of integers (protocol, section 8.6).
#pragma once

#include <cstddef>

#include "sums/exact_sum.hpp"

namespace afflux::sums {

// A block of integers of `bits` bits each, 32 for 16-bit types, else 40, 48 or 64, in units of
// 2**(exponent - bias - (bits - 8)). It lies in planes: the lower bits of all elements, as many as
// the type has, then their upper bits.
struct Partial {
    Dtype dtype;  // of the numbers that are summed
    int bits;
    int exponent;  // agreed for the block, 0 to 255

    // The power of two that is the unit.
    int unit() const { return exponent - arithmetic::format_of(dtype).bias() - (bits - 8); }
};

}  // namespace afflux::sums
