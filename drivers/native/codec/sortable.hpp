// Integers in the order of floats, for Max and Min in packets (protocol, section 8.5).
#pragma once

#include "codec/types.hpp"

namespace afflux::codec {

// Keys of elements, of which NaN's wins the reduction `op`, Max or Min. Int32 is its own key.
void to_keys(Dtype dtype, Op op, const void* elements, std::size_t count, std::int32_t* keys);

// The elements that have these keys; NaN becomes the quiet one.
void from_keys(Dtype dtype, const std::int32_t* keys, std::size_t count, void* out);

}  // namespace afflux::codec
