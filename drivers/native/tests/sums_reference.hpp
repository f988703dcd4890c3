// The rounded sum of floats once more, for the tests of sums: bit by bit, from the formats'
// definition alone, with nothing of what it is compared with.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace afflux::reference {

// A binary format of IEEE 754 with a sign, `exponent` and `fraction` bits.
struct Kind {
    int exponent, fraction;

    std::uint32_t top() const { return (1u << exponent) - 1; }
    std::uint32_t infinity() const { return top() << fraction; }
    std::uint32_t nan() const { return infinity() | 1u << (fraction - 1); }
    std::uint32_t sign() const { return 1u << (exponent + fraction); }
    // The least positive number is 2 to this power.
    int least() const { return 2 - (1 << (exponent - 1)) - fraction; }
};

inline constexpr Kind kFloat32{8, 23}, kFloat16{5, 10}, kBfloat16{8, 7};

// An integer of 384 bits in two's complement.
class Integer {
  public:
    void add(std::uint64_t magnitude, int shift, bool negative) {
        std::array<std::uint64_t, kWords> term{};
        const auto wide = static_cast<unsigned __int128>(magnitude) << shift % 64;
        term[static_cast<std::size_t>(shift / 64)] = static_cast<std::uint64_t>(wide);
        term[static_cast<std::size_t>(shift / 64 + 1)] = static_cast<std::uint64_t>(wide >> 64);
        unsigned __int128 carry = negative;
        for (std::size_t k = 0; k < kWords; ++k) {
            carry += words_[k];
            carry += negative ? ~term[k] : term[k];
            words_[k] = static_cast<std::uint64_t>(carry);
            carry >>= 64;
        }
    }

    bool negative() const { return words_.back() >> 63; }

    void negate() {
        unsigned __int128 carry = 1;
        for (std::uint64_t& word : words_) {
            carry += static_cast<std::uint64_t>(~word);
            word = static_cast<std::uint64_t>(carry);
            carry >>= 64;
        }
    }

    bool bit(int place) const {
        return place >= 0 && (words_[static_cast<std::size_t>(place / 64)] >> place % 64 & 1);
    }

    // Of the greatest bit that is set; -1 if there is none.
    int leading() const {
        int place = 64 * static_cast<int>(kWords) - 1;
        while (place >= 0 && !words_[static_cast<std::size_t>(place / 64)]) place -= 64;
        while (place >= 0 && !bit(place)) --place;
        return place;
    }

    bool any_below(int place) const {
        for (int k = 0; k < place; ++k) {
            if (k % 64 == 0 && k + 64 <= place) {
                if (words_[static_cast<std::size_t>(k / 64)]) return true;
                k += 63;
            } else if (bit(k)) {
                return true;
            }
        }
        return false;
    }

  private:
    static constexpr std::size_t kWords = 6;
    std::array<std::uint64_t, kWords> words_{};
};

// An integer that is not negative, in units of 2**unit, as the nearest number, ties to even.
inline std::uint32_t nearest(Kind kind, const Integer& sum, int unit) {
    const int leading = sum.leading();
    // The place of the last bit that the number keeps, and the bits from there on.
    const int last = std::max(leading - kind.fraction, kind.least() - unit);
    std::uint64_t kept = 0;
    for (int place = leading; place >= last; --place) kept = kept << 1 | sum.bit(place);
    const bool half = sum.bit(last - 1), more = sum.any_below(last - 1);
    if (half && (more || kept & 1)) ++kept;
    int power = last + unit;
    if (kept >> (kind.fraction + 1)) {
        kept >>= 1;
        ++power;
    }
    if (!(kept >> kind.fraction)) return static_cast<std::uint32_t>(kept);
    const auto field = static_cast<std::uint32_t>(power - kind.least() + 1);
    if (field >= kind.top()) return kind.infinity();
    return field << kind.fraction |
           (static_cast<std::uint32_t>(kept) & ((1u << kind.fraction) - 1));
}

// The sum of `count` elements, whose bits are at(0), at(1) …, times 2**-scale, rounded once.
template <typename At>
std::uint32_t sum(Kind kind, int scale, int count, bool all_present, At at) {
    Integer total;
    bool nan = false, plus = false, minus = false, zeros = all_present;
    for (int k = 0; k < count; ++k) {
        const std::uint32_t bits = at(k), field = bits >> kind.fraction & kind.top();
        const std::uint32_t fraction = bits & ((1u << kind.fraction) - 1);
        const bool negative = bits & kind.sign();
        zeros = zeros && bits == kind.sign();
        if (field == kind.top()) {
            (fraction ? nan : negative ? minus : plus) = true;
        } else if (field) {
            total.add(fraction | 1u << kind.fraction, static_cast<int>(field) - 1, negative);
        } else {
            total.add(fraction, 0, negative);
        }
    }
    if (nan || (plus && minus)) return kind.nan();
    if (plus || minus) return kind.infinity() | (minus ? kind.sign() : 0);
    const bool negative = total.negative();
    if (negative) total.negate();
    if (total.leading() < 0) return zeros ? kind.sign() : 0;
    return nearest(kind, total, kind.least() - scale) | (negative ? kind.sign() : 0);
}

}  // namespace afflux::reference
