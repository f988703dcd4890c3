// Between elements and the integers that packets carry.
#pragma once

#include "codec/numbers.hpp"
#include "codec/types.hpp"

namespace afflux::codec {

// Integers of whole blocks with their agreed exponents, 1 to 254, or 0 for zeros; int32 as it is.
// Elements that are not finite give 0, so that the same call serves the second visit of
// section 8.3. `out` has 64 * blocks integers.
void quantise(const Numbers& numbers, std::size_t blocks, const void* elements,
              const std::uint8_t* exponents, std::int32_t* out);

// Elements of summed integers, in the storage of numbers.dtype: what `quantise` is undone by.
void dequantise(const Numbers& numbers, std::size_t blocks, const std::int32_t* sums,
                const std::uint8_t* exponents, void* out);

}  // namespace afflux::codec
