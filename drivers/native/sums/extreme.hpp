// The greatest or least numbers of blocks of 256 bytes.
#pragma once

#include <cstddef>

#include "sums/exact_sum.hpp"

namespace afflux::sums {

// Writes the greatest or least of the sources' elements, 1 to 64 of each. -0 is less than +0, and a
// NaN wins; all NaN become the one that ExactSum gives. Blocks need no alignment; `out` may be one
// of the sources, or overlap none.
void extremes(Dtype dtype, bool greatest, std::size_t blocks, int sources,
              const void* const* elements, void* out);

// The same of two blocks, of which the first becomes the result. With itself a block keeps its
// numbers.
void extreme(Dtype dtype, bool greatest, void* own, const void* arriving);

}  // namespace afflux::sums
