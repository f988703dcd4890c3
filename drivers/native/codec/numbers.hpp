// The constants of one operation (protocol, section 8.2).
#pragma once

#include "codec/types.hpp"

namespace afflux::codec {

// From floats to integers of an agreed exponent E, 1 to 254, and back, in exact powers of two:
//
//     q = rint(x * 2**(scale_power - E))
//     y = sum * 2**(unit_power + E), for Avg divided by the ranks
//
// Where the number of ranks is a power of two itself the division is part of the unit, and
// `divisor` is 1. Cheap to make: one for each operation.
struct Numbers {
    // 1 to 64 ranks are summed, all ranks of a hierarchy included.
    // Throws std::invalid_argument for other ranks and for an operation that is not defined.
    Numbers(int ranks, Dtype dtype, Op op);

    int ranks;
    Dtype dtype;
    Op op;
    int scale_power;
    int unit_power;
    int divisor;
};

// ceil(log2 ranks): bits that the sum of so many integers needs above one of them.
int guard_bits(int ranks);

}  // namespace afflux::codec
