#include "sums/exact_sum.hpp"

#include <bit>

#include "arithmetic/elements.hpp"

namespace afflux::sums {
namespace {

constexpr int kDigitBits = 32;
constexpr std::uint64_t kDigitMask = 0xFFFFFFFF;
// float32 is an integer times this power of two.
constexpr int kUnitExponent = -149;

}  // namespace

void ExactSum::add(std::uint32_t element) {
    const std::uint32_t bits = arithmetic::widen(sum_.dtype, element);
    const bool negative = bits >> 31;
    negative_zeros_ = negative_zeros_ && bits == 0x80000000;
    const std::uint32_t field = bits >> 23 & 255, fraction = bits & 0x7FFFFF;
    if (field == 255) {
        (fraction ? nan_ : negative ? negative_infinite_ : infinite_) = true;
        return;
    }
    const std::uint32_t place = field ? field - 1 : 0;
    const std::uint64_t significand = fraction | (field ? 1u << 23 : 0);
    const std::uint64_t shifted = significand << place % kDigitBits;
    const auto low = static_cast<std::int64_t>(shifted & kDigitMask);
    const auto high = static_cast<std::int64_t>(shifted >> kDigitBits);
    std::int64_t* digits = digits_ + place / kDigitBits;
    digits[0] += negative ? -low : low;
    digits[1] += negative ? -high : high;
}

std::uint32_t ExactSum::rounded() const {
    if (nan_ || (infinite_ && negative_infinite_)) return format_.nan();
    if (infinite_) return format_.infinity();
    if (negative_infinite_) return format_.infinity() | format_.sign();
    return rounded_finite();
}

std::uint32_t ExactSum::rounded_finite() const {
    // With carries, the last digit has the sign, and all others are 0 … 2**32 - 1.
    const auto carried = [](const std::int64_t* digits, int sign, std::int64_t* out) {
        std::int64_t carry = 0;
        for (int k = 0; k < kDigits - 1; ++k) {
            carry += sign * digits[k];
            out[k] = carry & static_cast<std::int64_t>(kDigitMask);
            carry >>= kDigitBits;
        }
        out[kDigits - 1] = carry + sign * digits[kDigits - 1];
    };
    std::int64_t digits[kDigits];
    carried(digits_, 1, digits);
    const bool negative = digits[kDigits - 1] < 0;
    if (negative) carried(digits_, -1, digits);
    int top = kDigits - 1;
    while (top >= 0 && digits[top] == 0) --top;
    if (top < 0) return negative_zeros_ && sum_.all_present ? format_.sign() : 0;
    // The 64 bits from the leading one on, and whether any bit below is set.
    const auto digit = [&](int k) { return k < 0 ? 0 : static_cast<std::uint64_t>(digits[k]); };
    std::uint64_t head = digit(top) << kDigitBits | digit(top - 1);
    const int shift = std::countl_zero(head);
    head = head << shift | digit(top - 2) >> (kDigitBits - shift);
    bool sticky = (digit(top - 2) << shift & kDigitMask) != 0;
    for (int k = top - 3; k >= 0; --k) sticky = sticky || digits[k] != 0;
    const int exponent = kUnitExponent + kDigitBits * (top - 1) - shift - sum_.scale;
    const std::uint32_t magnitude = arithmetic::round_to(format_, false, head, exponent, sticky);
    return magnitude | (negative ? format_.sign() : 0);
}

}  // namespace afflux::sums
