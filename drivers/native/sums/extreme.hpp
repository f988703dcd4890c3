// The greater or lesser number of each two elements of blocks of 256 bytes.
#pragma once

#include "sums/exact_sum.hpp"

namespace afflux::sums {

// own := the greater of own and arriving, or the lesser one, element by element. -0 is less than
// +0, and a NaN wins; all NaN become the one that ExactSum gives. Blocks need no alignment. With
// itself a block keeps its numbers.
void extreme(Dtype dtype, bool greatest, void* own, const void* arriving);

}  // namespace afflux::sums
