// NaN and infinities, counted by element (protocol, section 8.3).
#pragma once

#include "codec/types.hpp"

namespace afflux::codec {

// This rank's contribution to each element's word, which counts the ranks at which the element is
// NaN, +infinite or -infinite, in 10 bits each; 0 for a finite element.
void class_counts(Dtype dtype, const void* elements, std::size_t count, std::int32_t* out);

// Writes NaN and infinities over `out` where the summed words count any: NaN where a rank had it or
// both infinities occur.
void overlay_classes(Dtype dtype, const std::int32_t* sums, std::size_t count, void* out);

}  // namespace afflux::codec
