// NaN and infinities, counted by element (protocol, section 8.3).
#pragma once

#include "codec/types.hpp"

namespace afflux::codec {

// One word counts the ranks at which an element is NaN, +infinite or -infinite: 10 bits each.
inline constexpr std::int32_t kNan = 1, kPositiveInfinity = 1 << 10, kNegativeInfinity = 1 << 20;

// What this rank adds to each element's word; 0 for a finite element.
void class_counts(Dtype dtype, const void* elements, std::size_t count, std::int32_t* out);

// Writes NaN and infinities over `out` where the summed words say so: NaN where any rank had NaN or
// both infinities occur.
void overlay_classes(Dtype dtype, const std::int32_t* sums, std::size_t count, void* out);

}  // namespace afflux::codec
