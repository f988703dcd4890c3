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

// Both for whole tensors of which nothing is in a cache: results go past the caches too.
//
// `encode` finds the exponents and quantises with them, as if no other rank had greater ones. It
// quantises one row of `row_blocks` blocks while it scans the next, so that every element comes
// from memory once. `exponents` has `blocks` bytes, as from `scan`. Absent blocks become zeros;
// those with 255 get integers of no use, as they need the two visits of section 8.3.
void encode(const Numbers& numbers, std::size_t blocks, std::size_t row_blocks,
            const void* elements, std::uint8_t* exponents, std::int32_t* out);

void decode(const Numbers& numbers, std::size_t blocks, const std::int32_t* sums,
            const std::uint8_t* exponents, void* out);

}  // namespace afflux::codec
