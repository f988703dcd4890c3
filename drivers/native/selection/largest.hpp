// The largest elements of a tensor, in one pass over it as a rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace afflux::selection {

// Places, ascending, of the `count` elements with the largest absolute values, from 1 to all; NaN
// is larger than all. Of those that are equal to the least of them, any may be among them, the
// same each time.
//
// A sample tells from which value on elements can be among the largest; only those are kept while
// the tensor is read. If they become too many, the least are dropped, and the bound rises; if the
// sample's bound was too high, the tensor is read again without it. (Estimating a threshold from a
// sample is from Y. Lin et al., "Deep Gradient Compression", ICLR 2018, section 3; there the number
// of elements is an estimate, too.)
std::vector<std::int64_t> largest(std::span<const float> elements, std::size_t count);

}  // namespace afflux::selection
