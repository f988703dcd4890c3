#include "codec/sortable.hpp"

#include <limits>

#include "codec/elements.hpp"

namespace afflux::codec {

namespace {

constexpr std::int32_t kGreatest = std::numeric_limits<std::int32_t>::max();
constexpr std::int32_t kLeast = std::numeric_limits<std::int32_t>::min();

// The order-preserving map of float32's bits, and its own inverse.
std::int32_t flip(std::int32_t bits) {
    return bits >= 0 ? bits : bits ^ kGreatest;
}

}  // namespace

void to_sortable(Dtype dtype, Op op, const void* elements, std::size_t count,
                 std::int32_t* sortable) {
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t bits = bits_at(dtype, elements, i);
        if (dtype == Dtype::Int32) {
            sortable[i] = static_cast<std::int32_t>(bits);
            continue;
        }
        const std::uint32_t wide = widen(dtype, bits);
        const bool nan = (wide & 0x7FFFFFFF) > 0x7F800000;
        sortable[i] =
            nan ? (op == Op::Max ? kGreatest : kLeast) : flip(static_cast<std::int32_t>(wide));
    }
}

void from_sortable(Dtype dtype, const std::int32_t* sortable, std::size_t count, void* out) {
    for (std::size_t i = 0; i < count; ++i) {
        if (dtype == Dtype::Int32) {
            put_bits(dtype, out, i, static_cast<std::uint32_t>(sortable[i]));
        } else if (sortable[i] == kGreatest || sortable[i] == kLeast) {
            put_bits(dtype, out, i, format_of(dtype).nan());
        } else {
            const auto wide = static_cast<std::uint32_t>(flip(sortable[i]));
            put_bits(dtype, out, i, narrow_exactly(dtype, wide));
        }
    }
}

}  // namespace afflux::codec
