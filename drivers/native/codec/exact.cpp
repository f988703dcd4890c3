#include "codec/exact.hpp"

#include <algorithm>
#include <bit>

#include "codec/classes.hpp"
#include "codec/elements.hpp"

namespace afflux::codec {

namespace {

using wire::kExactWords;

constexpr std::size_t kLimbs = wire::kExactLimbs;
constexpr int kLimbBits = wire::kExactLimbBits;
constexpr std::int64_t kLimbMask = (1 << kLimbBits) - 1;
// float32 is an integer times this power of two.
constexpr int kUnitExponent = -149;

// A magnitude of 12 limbs of 25 bits and their carries, with 64 bits below the unit, as words,
// least first.
struct Magnitude {
    static constexpr int kWords = 6;
    std::uint64_t words[kWords] = {};

    void set(const std::int64_t (&limbs)[kLimbs + 1]) {
        for (int k = 0; k <= static_cast<int>(kLimbs); ++k) {
            const int position = 64 + k * kLimbBits, word = position / 64, shift = position % 64;
            const auto limb = static_cast<std::uint64_t>(limbs[k]);
            words[word] |= limb << shift;
            if (shift && word + 1 < kWords) words[word + 1] |= limb >> (64 - shift);
        }
    }

    // Divides by a small number. Returns whether there is a remainder.
    bool divide(std::uint64_t divisor) {
        std::uint64_t rest = 0;
        for (int k = kWords - 1; k >= 0; --k) {
            // In halves: the remainder is less than 64, so that it fits into a word with a half.
            const std::uint64_t high = rest << 32 | words[k] >> 32;
            const std::uint64_t low = (high % divisor) << 32 | (words[k] & 0xFFFFFFFF);
            words[k] = (high / divisor) << 32 | low / divisor;
            rest = low % divisor;
        }
        return rest != 0;
    }
};

std::uint32_t decode_one(Format format, const std::int32_t* sums, std::uint64_t divisor) {
    // Carry first, so that all limbs but the last are 0 … 2**25 - 1; the last one has the sign.
    std::int64_t limbs[kLimbs + 1];
    std::int64_t carry = 0;
    for (std::size_t k = 0; k < kLimbs; ++k) {
        const std::int64_t value = sums[k] + carry;
        limbs[k] = value & kLimbMask;
        carry = value >> kLimbBits;
    }
    limbs[kLimbs] = carry;
    const bool negative = carry < 0;
    if (negative) {
        std::int64_t borrow = 0;
        for (std::size_t k = 0; k < kLimbs; ++k) {
            const std::int64_t value = borrow - limbs[k];
            limbs[k] = value & kLimbMask;
            borrow = value >> kLimbBits;
        }
        limbs[kLimbs] = borrow - limbs[kLimbs];
    }
    Magnitude magnitude;
    magnitude.set(limbs);
    bool sticky = divisor != 1 && magnitude.divide(divisor);
    int top = Magnitude::kWords - 1;
    while (top > 0 && magnitude.words[top] == 0) --top;
    std::uint64_t head = magnitude.words[top];
    int exponent = kUnitExponent + 64 * (top - 1);
    if (top > 0 && head) {
        const int shift = std::countl_zero(head);
        const std::uint64_t below = magnitude.words[top - 1];
        if (shift) {
            head = head << shift | below >> (64 - shift);
            sticky |= (below << shift) != 0;
        } else {
            sticky |= below != 0;
        }
        exponent -= shift;
        for (int k = 0; k < top - 1; ++k) sticky |= magnitude.words[k] != 0;
    }
    return round_to(format, negative, head, exponent, sticky);
}

}  // namespace

void exact_encode(Dtype dtype, const void* elements, std::size_t count, std::int32_t* words) {
    std::fill_n(words, kExactWords * count, 0);
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t bits = widen(dtype, bits_at(dtype, elements, i));
        std::int32_t* limbs = words + kExactWords * i;
        if (!is_finite(bits)) continue;
        const std::uint32_t field = bits >> 23 & 255;
        const std::uint64_t significand = (bits & 0x7FFFFF) | (field ? 1u << 23 : 0);
        // 24 bits, shifted by up to 24: two limbs hold it.
        const std::uint32_t position = std::max(field, 1u) - 1;
        const std::uint64_t shifted = significand << position % kLimbBits;
        const auto low = static_cast<std::int32_t>(shifted & static_cast<std::uint64_t>(kLimbMask));
        const auto high = static_cast<std::int32_t>(shifted >> kLimbBits);
        const std::int32_t sign = bits >> 31 ? -1 : 1;
        limbs[position / kLimbBits] = sign * low;
        if (high) limbs[position / kLimbBits + 1] = sign * high;
    }
    for (std::size_t i = 0; i < count; ++i) {
        class_counts(dtype, at(dtype, elements, i), 1, words + kExactWords * i + kLimbs);
    }
}

void exact_decode(const Numbers& numbers, const std::int32_t* sums, std::size_t count, void* out) {
    const Format format = format_of(numbers.dtype);
    const auto divisor = static_cast<std::uint64_t>(numbers.op == Op::Avg ? numbers.ranks : 1);
    for (std::size_t i = 0; i < count; ++i) {
        put_bits(numbers.dtype, out, i, decode_one(format, sums + kExactWords * i, divisor));
    }
    for (std::size_t i = 0; i < count; ++i) {
        const std::int32_t* classes = sums + kExactWords * i + kLimbs;
        overlay_classes(numbers.dtype, classes, 1, at(numbers.dtype, out, i));
    }
}

}  // namespace afflux::codec
