// Reductions of elements as they are, for types of which nothing needs to be encoded.
#pragma once

#include <cstddef>
#include <cstdint>

namespace afflux::arithmetic {

enum class Plain : std::uint8_t { Int64, Int32, Int16, Int8, Uint8, Float64 };

enum class PlainOp : std::uint8_t { Sum, Avg, Max, Min, Product };

constexpr std::size_t size_of(Plain type) {
    switch (type) {
        case Plain::Int64:
        case Plain::Float64:
            return 8;
        case Plain::Int32:
            return 4;
        case Plain::Int16:
            return 2;
        default:
            return 1;
    }
}

// Reduces `count` elements of `sources` sources, in the order of the sources. Integers wrap modulo
// 2 to the power of their bits; an average is the sum, taken in 64 bits, divided and truncated
// towards zero. Of Float64, each addition is rounded, and the greatest and the least of anything
// and a NaN are a NaN. `out` may be one of the sources, or overlap none.
void reduce_plain(Plain type, PlainOp op, std::size_t count, int sources,
                  const void* const* elements, void* out);

}  // namespace afflux::arithmetic
