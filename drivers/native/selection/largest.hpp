// The largest elements of a tensor, in one pass over it as a rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "selection/magnitude.hpp"

namespace afflux::selection {

// Places, ascending, of the `count` elements with the largest absolute values, from 1 to all; NaN
// is larger than all. Of those that are equal to the least of them, the first.
//
// A bound tells from which value on elements can be among the largest; only those are kept while
// the tensor is read. If they become too many, the least are dropped, and the bound rises; if the
// bound was too high, the tensor is read again with a lower one. So the bound changes how long it
// takes, and nothing else. It comes from a sample (as the threshold in Y. Lin et al., "Deep
// Gradient Compression", ICLR 2018, section 3; there the number of elements is an estimate, too),
// or from the step before (as in S. Li and T. Hoefler, "Near-Optimal Sparse Allreduce for
// Distributed Deep Learning", PPoPP 2022, section 3.1.3; there too it is taken as it is).
//
// `guess`, if there is one, is a bound to begin with, 0 for none, and becomes one for a tensor that
// is like this one.
std::vector<std::int64_t> largest(std::span<const float> elements, std::size_t count,
                                  Magnitude* guess = nullptr);

}  // namespace afflux::selection
