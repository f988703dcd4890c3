#include "codec/classes.hpp"

#include "codec/elements.hpp"

namespace afflux::codec {

namespace {

std::int32_t class_of(std::uint32_t float32_bits) {
    if (is_finite(float32_bits)) return 0;
    if (float32_bits & 0x7FFFFF) return wire::kClassNan;
    return float32_bits >> 31 ? wire::kClassNegativeInfinity : wire::kClassPositiveInfinity;
}

}  // namespace

void class_counts(Dtype dtype, const void* elements, std::size_t count, std::int32_t* out) {
    for (std::size_t i = 0; i < count; ++i) {
        out[i] = class_of(widen(dtype, bits_at(dtype, elements, i)));
    }
}

void overlay_classes(Dtype dtype, const std::int32_t* sums, std::size_t count, void* out) {
    const Format format = format_of(dtype);
    constexpr std::int32_t kCount = wire::kClassPositiveInfinity - 1;
    for (std::size_t i = 0; i < count; ++i) {
        const bool nan = sums[i] & kCount;
        const bool positive = sums[i] / wire::kClassPositiveInfinity & kCount;
        const bool negative = sums[i] / wire::kClassNegativeInfinity & kCount;
        if (nan || (positive && negative)) {
            put_bits(dtype, out, i, format.nan());
        } else if (positive || negative) {
            put_bits(dtype, out, i, format.infinity() | (negative ? format.sign() : 0));
        }
    }
}

}  // namespace afflux::codec
