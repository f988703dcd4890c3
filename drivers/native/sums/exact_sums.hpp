// Correctly rounded sums of arrays that lie in memory.
#pragma once

#include <cstddef>

#include "sums/exact_sum.hpp"

namespace afflux::sums {

// Writes the sum of the sources' elements, 1 to 64 of each, `count` times. Arrays need no
// alignment; `out` may be one of the sources, or overlap none. Each result is that of ExactSum,
// which only takes elements near a sum that doubles cannot hold.
//
// Returns how many elements ExactSum took.
std::size_t exact_sums(const Sum& sum, std::size_t count, int sources, const void* const* elements,
                       void* out);

// The same, with the result written to each source's own memory.
std::size_t exact_sums_in_place(const Sum& sum, std::size_t count, int sources,
                                void* const* elements);

// The sums of blocks of 256 bytes, of which some are absent: block b of source r is there if
// present[r][b] is not 0. Absent ones are not read, and count as +0. If a block is absent at all
// sources, some[b] becomes 0 and the block of `out` is left as it is; else some[b] becomes 1.
// `sum.all_present` says whether these are all sources. `also`, unless it is null, gets the same as
// `out`; both may be sources.
std::size_t exact_sums_of_present(const Sum& sum, std::size_t blocks, int sources,
                                  const void* const* elements, const std::uint8_t* const* present,
                                  void* out, std::uint8_t* some, void* also = nullptr);

// The scale of a sum for an average over so many ranks, ceil(log2 ranks): the scaled sum is not
// larger than the largest element.
int average_scale(int ranks);

// Makes such sums averages, in place: divides by ranks / 2**average_scale(ranks), and rounds to the
// dtype, a second time unless the number of ranks is a power of two. All NaN become one.
void divide(Dtype dtype, int ranks, std::size_t count, void* elements);

}  // namespace afflux::sums
