#include "arithmetic/rounding.hpp"

#include <algorithm>
#include <bit>

namespace afflux::arithmetic {

std::uint32_t round_to(Format format, bool negative, std::uint64_t magnitude, int exponent,
                       bool sticky) {
    if (magnitude == 0) return 0;
    // The leading bit's place, and the place of the result's last bit; denormals share theirs.
    const int leading = exponent + static_cast<int>(std::bit_width(magnitude)) - 1;
    const int binade = std::max(leading, 1 - format.bias());
    const int drop = binade - format.fraction_bits - exponent;
    std::uint64_t kept;
    if (drop <= 0) {
        kept = magnitude << -drop;
    } else if (drop > 64) {
        return 0;
    } else {
        const std::uint64_t half = std::uint64_t{1} << (drop - 1);
        const std::uint64_t below = drop == 64 ? magnitude : magnitude & ((half << 1) - 1);
        kept = drop == 64 ? 0 : magnitude >> drop;
        if (below > half || (below == half && (sticky || (kept & 1)))) ++kept;
    }
    // The leading bit of a normal significand adds one to the exponent field, as does a carry.
    const std::int64_t field = binade + format.bias() - 1;
    if (field >= (1 << format.exponent_bits)) {
        return format.infinity() | (negative ? format.sign() : 0);
    }
    std::uint64_t bits = (static_cast<std::uint64_t>(field) << format.fraction_bits) + kept;
    bits = std::min<std::uint64_t>(bits, format.infinity());
    return static_cast<std::uint32_t>(bits) | (negative && bits ? format.sign() : 0);
}

std::uint32_t round_to(Format format, double value) {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    const int field = static_cast<int>(bits >> 52 & 0x7FF);
    const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
    const std::uint64_t magnitude = field ? fraction | std::uint64_t{1} << 52 : fraction;
    return round_to(format, bits >> 63, magnitude, std::max(field, 1) - 1075, false);
}

}  // namespace afflux::arithmetic
