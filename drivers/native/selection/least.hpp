// Where the largest of many magnitudes end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "selection/magnitude.hpp"

namespace afflux::selection {

// The least absolute value among the `count` largest, and how many of these have it.
struct Least {
    Magnitude magnitude;
    std::size_t equal;
};

// Of numbers above the least integer; `count` is from one to all of them.
Least least_of(std::span<const std::int32_t> numbers, std::size_t count);

}  // namespace afflux::selection
