// Reductions of tensors that are all in memory, as the protocol's sections 8.1 to 8.5 define them,
// to the bit.
#pragma once

#include "codec/numbers.hpp"
#include "codec/types.hpp"

namespace afflux::codec {

// Reduces whole blocks. Block b of source r begins at element 64 * b of elements[r];
// exponents[r][b] is its result of `scan`. If all are absent and the operation is a sum,
// present[b] becomes 0 and block b of `out` is left as it is; else present[b] becomes 1 and the
// result is written. Max and Min ignore exponents, which may be null. Blocks that are
// absent at a source are not read there. `out` may be one of the sources, or overlap none.
// `sources` may be less than numbers.ranks if the other ranks have nothing to add.
void reduce(const Numbers& numbers, std::size_t blocks, int sources, const void* const* elements,
            const std::uint8_t* const* exponents, void* out, std::uint8_t* present);

// Reduces `count` elements in one pass: reads each source once, and writes the result to each
// source's own memory. Blocks that are +0 everywhere are not written. Every 64th element begins a
// block, so parts of a tensor must begin at multiples of 64.
void reduce_in_place(const Numbers& numbers, std::size_t count, int sources, void* const* elements);

// The exact mode of section 8.4, Sum or Avg of floats, rounded once. `out` may be a source.
void exact(const Numbers& numbers, std::size_t count, int sources, const void* const* elements,
           void* out);

// Whether an operation on `count` elements is in exact mode.
constexpr bool is_exact(Dtype dtype, Op op, std::size_t count) {
    return dtype != Dtype::Int32 && is_sum(op) && count <= wire::kExactElements;
}

}  // namespace afflux::codec
