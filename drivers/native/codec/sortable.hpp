// Integers in the order of floats, for Max and Min in packets (protocol, section 8.5).
#pragma once

#include "codec/types.hpp"

namespace afflux::codec {

// The integers of elements, of which NaN's wins the reduction `op`, Max or Min. Int32 stays as it
// is.
void to_sortable(Dtype dtype, Op op, const void* elements, std::size_t count,
                 std::int32_t* sortable);

// The elements that have these integers; NaN becomes the quiet one.
void from_sortable(Dtype dtype, const std::int32_t* sortable, std::size_t count, void* out);

}  // namespace afflux::codec
