// Absolute values as integers.
#pragma once

#include <bit>
#include <cstdint>

namespace afflux::selection {

// Absolute values in the order of numbers, NaN last, as integers: never negative, and signed as
// every processor compares many of those at once.
using Magnitude = std::int32_t;

constexpr Magnitude kLargestMagnitude = 0x7FFFFFFF;

inline Magnitude magnitude_of(float element) {
    return std::bit_cast<Magnitude>(element) & kLargestMagnitude;
}

}  // namespace afflux::selection
