// The constants of one operation (protocol, section 8.2).
#pragma once

#include "codec/types.hpp"

namespace afflux::codec {

// From floats to integers of an agreed exponent E, 1 to 254, and back, in exact powers of two:
//
//     q = rint(x * 2**(scale_power - E))
//     y = sum * 2**(unit_power + E), for Avg divided by the ranks
//
// If the number of ranks is itself a power of two, the division is part of the unit and `divisor`
// is 1. Cheap to make, so there is one for each operation.
struct Numbers {
    // `ranks` are all that are summed, 1 to 64, those of a whole tree included.
    // Throws std::invalid_argument for other numbers and for an operation that is not defined.
    Numbers(int ranks, Dtype dtype, Op op);

    int ranks;
    Dtype dtype;
    Op op;
    int scale_power;
    int unit_power;
    int divisor;
};

// ceil(log2 ranks), the bits that a sum of so many integers has more than one of them.
int guard_bits(int ranks);

}  // namespace afflux::codec
