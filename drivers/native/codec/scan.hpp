// Which blocks are present, and their exponents (protocol, sections 8.1 and 8.2).
#pragma once

#include "codec/types.hpp"

namespace afflux::codec {

// Writes one byte for each block of `elements`, the last one taken as padded with zeros:
//
//     0         absent: all elements are +0 or -0
//     1 … 254   the biased float32 exponent of the greatest magnitude; 1 for any present int32
//     block 255       an element is NaN or infinite
//
// `exponents` has blocks_of(count) bytes.
void scan(Dtype dtype, const void* elements, std::size_t count, std::uint8_t* exponents);

// `scan`, and copies the present blocks to the same places of `out`, which has whole blocks: the
// last one is padded with zeros. Absent blocks of `out` are left as they are.
void scan_copy(Dtype dtype, const void* elements, std::size_t count, void* out,
               std::uint8_t* exponents);

// `scan`, or `scan_copy` if `out` is not null, that also makes the elements of absent blocks +0. As
// with `clear`, what is +0 already is not written to.
void scan_clear(Dtype dtype, void* elements, std::size_t count, void* out, std::uint8_t* exponents);

// The finite elements' exponent of a block of floats: 0 if all that is finite is +0 or -0.
std::uint8_t finite_exponent(Dtype dtype, const void* block, std::size_t count);

// Makes `count` elements whose result is zero +0. Writes only if there is something to change: a
// page that was never written to stays so.
void clear(Dtype dtype, void* elements, std::size_t count);

}  // namespace afflux::codec
