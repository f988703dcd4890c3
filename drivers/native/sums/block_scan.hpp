// The blocks of a tensor that have to be sent, and their exponents (version 2 of the protocol,
// section 1).
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/types.hpp"

namespace afflux::sums {

// Writes one byte for each of so many blocks of 256 bytes, which need no alignment: 0 if no bit of
// the block is set, else its exponent, which is the greatest exponent field of its finite elements,
// in the dtype's own format, and at least 1. Of int32 the exponent is 1.
void scan_blocks(codec::Dtype dtype, const void* elements, std::size_t blocks,
                 std::uint8_t* exponents);

}  // namespace afflux::sums
