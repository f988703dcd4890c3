// Estimates of a tensor's largest elements from a sample.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "selection/magnitude.hpp"

namespace afflux::selection {

// The places that are sampled in a tensor of so many elements, ascending; none if it has too few.
std::vector<std::size_t> sampled_places(std::size_t elements);

// A bound that more than `count` elements are expected to reach, from a sample; 0 if there is none.
Magnitude sampled_bound(std::span<const float> elements, std::size_t count);

}  // namespace afflux::selection
