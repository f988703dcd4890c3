// Correctly rounded sums of arrays that lie in memory.
#pragma once

#include <cstddef>

#include "sums/exact_sum.hpp"

namespace afflux::sums {

// Writes the sum of the sources' elements, one or more of each, `count` times, to each of `outs`
// arrays, 1 to 64. Arrays need no alignment; an array of `out` may be one of the sources, or
// overlap none. Each result is that of ExactSum, which, for up to 64 sources, only takes elements
// near a sum that doubles cannot hold.
//
// Returns how many elements ExactSum took.
std::size_t exact_sums(const Sum& sum, std::size_t count, int sources, const void* const* elements,
                       int outs, void* const* out);

// The same with one array of results.
std::size_t exact_sums(const Sum& sum, std::size_t count, int sources, const void* const* elements,
                       void* out);

// The scale of a sum for an average over so many ranks, ceil(log2 ranks): the scaled sum is not
// larger than the largest element.
int average_scale(int ranks);

// Makes such sums averages, in place: divides by ranks / 2**average_scale(ranks), and rounds to the
// dtype, a second time unless the number of ranks is a power of two. All NaN become one.
void divide(Dtype dtype, int ranks, std::size_t count, void* elements);

}  // namespace afflux::sums
