// Converts elements to the integers that packets carry, and back.
#pragma once

#include "codec/numbers.hpp"
#include "codec/types.hpp"

namespace afflux::codec {

// Writes the integers of whole blocks with their agreed exponents, 1 to 254, or 0 for blocks of
// zeros; int32 stays as it is. Elements that are not finite become 0, so that the same call serves
// the second visit of section 8.3. `out` has 64 * blocks integers.
void quantise(const Numbers& numbers, std::size_t blocks, const void* elements,
              const std::uint8_t* exponents, std::int32_t* out);

// Writes the elements of summed integers, in the storage of numbers.dtype: the inverse of
// `quantise`.
void dequantise(const Numbers& numbers, std::size_t blocks, const std::int32_t* sums,
                const std::uint8_t* exponents, void* out);

}  // namespace afflux::codec
