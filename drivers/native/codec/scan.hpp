// Finds out which blocks are present, and their exponents (protocol, sections 8.1 and 8.2).
#pragma once

#include "codec/types.hpp"

namespace afflux::codec {

// Writes one byte for each block of `elements`, of which the last counts as padded with zeros:
//
//     0         absent: all elements are +0 or -0
//     1 … 254   the biased float32 exponent of the greatest magnitude; 1 for any present int32
//     255       an element is NaN or infinite
//
// `exponents` has blocks_of(count) bytes.
void scan(Dtype dtype, const void* elements, std::size_t count, std::uint8_t* exponents);

// Does the same as `scan`, and copies the present blocks to the same offsets of `out`, which has
// whole blocks: the last one is padded with zeros. Absent blocks of `out` are left as they are.
void scan_copy(Dtype dtype, const void* elements, std::size_t count, void* out,
               std::uint8_t* exponents);

// Does the same as `scan`, or as `scan_copy` if `out` is not null, and makes the elements of absent
// blocks +0. As with `clear`, blocks that are +0 already are not written.
void scan_clear(Dtype dtype, void* elements, std::size_t count, void* out, std::uint8_t* exponents);

// The exponent of a block's finite elements; 0 if all of these are +0 or -0.
std::uint8_t finite_exponent(Dtype dtype, const void* block, std::size_t count);

// Makes `count` zeros of either sign +0. Writes only if there is something to change, so that a
// page that was never written stays so.
void clear(Dtype dtype, void* elements, std::size_t count);

}  // namespace afflux::codec
