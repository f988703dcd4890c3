// The blocks of a tensor that have to be sent, and their exponents (protocol, section 8.1).
#pragma once

#include <cstddef>
#include <cstdint>

#include "arithmetic/types.hpp"

namespace afflux::sums {

// Writes one byte for each of so many blocks of 256 bytes, which need no alignment: 0 if no bit of
// the block is set, else its exponent, which is the greatest exponent field of its finite elements,
// in the dtype's own format, and at least 1. Of int32 the exponent is 1.
void scan_blocks(arithmetic::Dtype dtype, const void* elements, std::size_t blocks,
                 std::uint8_t* exponents);

// The same of an array of any length, whose last block may be short; the present blocks are copied,
// the last one padded with zeros.
void scan_into(arithmetic::Dtype dtype, const void* elements, std::size_t bytes, void* out,
               std::uint8_t* exponents);

}  // namespace afflux::sums
