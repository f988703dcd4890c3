// Elements for the tests of sums, of families that each make something difficult.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "arithmetic/elements.hpp"
#include "arithmetic/rounding.hpp"

namespace afflux::families {

using arithmetic::Dtype;

enum class Family {
    Gradients,      // of similar size, around zero
    AllExponents,   // any finite bits
    Ties,           // integers of few bits on either side of a last place
    Cancellation,   // pairs of numbers and their negatives, and small rests
    Subnormals,     // zeros and the least numbers
    Specials,       // any bits, infinities and NaN among them
    NegativeZeros,  // zeros of both signs, mostly negative
    OneHuge,        // gradients and a single huge element in a block
    Largest,        // sums near the greatest number
};

inline constexpr Family kFamilies[] = {
    Family::Gradients,     Family::AllExponents, Family::Ties,
    Family::Cancellation,  Family::Subnormals,   Family::Specials,
    Family::NegativeZeros, Family::OneHuge,      Family::Largest,
};

class Elements {
  public:
    Elements(Dtype dtype, Family family, std::uint64_t seed)
        : dtype_(dtype), format_(arithmetic::format_of(dtype)), family_(family), draw_(seed) {}

    // The bits of each rank's element at one place.
    void column(int ranks, std::vector<std::uint32_t>& bits) {
        bits.resize(static_cast<std::size_t>(ranks));
        for (std::uint32_t& each : bits) each = one();
        if (family_ == Family::Cancellation) {
            for (std::size_t r = 0; r + 1 < bits.size(); r += 2) {
                if (draw() % 8) bits[r + 1] = bits[r] ^ format_.sign();
                if (draw() % 4 == 0) bits[r + 1] ^= 1;
            }
            if (ranks > 2 && draw() % 2) std::swap(bits.front(), bits.back());
        }
        if (family_ == Family::NegativeZeros && draw() % 2)
            bits.assign(bits.size(), format_.sign());
        if (family_ == Family::OneHuge && draw() % 64 == 0) {
            bits[draw() % bits.size()] = rounded(std::ldexp(1.0 + unit(), huge_power()));
        }
        ++place_;
    }

  private:
    std::uint32_t draw() { return static_cast<std::uint32_t>(draw_()); }
    double unit() { return static_cast<double>(draw()) * 0x1p-32; }
    std::uint32_t rounded(double value) const { return arithmetic::round_to(format_, value); }
    int huge_power() { return dtype_ == Dtype::Float16 ? 15 : 20 + static_cast<int>(draw() % 100); }
    std::uint32_t any() { return draw() & ((format_.sign() << 1) - 1); }
    std::uint32_t sign() { return draw() & format_.sign(); }

    std::uint32_t finite() {
        std::uint32_t bits = any();
        while ((bits & format_.infinity()) == format_.infinity()) bits = any();
        return bits;
    }

    std::uint32_t one() {
        switch (family_) {
            case Family::Gradients:
            case Family::OneHuge:
                return rounded((unit() + unit() + unit() - 1.5) *
                               std::ldexp(1e-2, -static_cast<int>(draw() % 6)));
            case Family::AllExponents:
            case Family::Cancellation:
                return finite();
            case Family::Ties: {
                // 1 … 4 units of a few places around the last one of numbers near 2**8.
                const int place = 8 - format_.fraction_bits - static_cast<int>(draw() % 3);
                const double base = draw() % 3 ? 0 : 256 + static_cast<double>(draw() % 256);
                const double value = base + std::ldexp(1 + static_cast<double>(draw() % 4), place);
                return rounded(draw() % 2 ? value : -value);
            }
            case Family::Subnormals:
                return (draw() & ((2u << format_.fraction_bits) - 1)) | sign();
            case Family::Specials:
                if (draw() % 16 == 0) return format_.infinity() | (draw() & 1 ? format_.sign() : 0);
                return draw() % 64 ? finite() : any() | format_.infinity();
            case Family::NegativeZeros:
                return draw() % 4 ? format_.sign() : 0;
            case Family::Largest:
                return (format_.infinity() - 1 - draw() % (3u << format_.fraction_bits)) | sign();
        }
        return 0;
    }

    Dtype dtype_;
    arithmetic::Format format_;
    Family family_;
    std::mt19937_64 draw_;
    std::size_t place_ = 0;
};

}  // namespace afflux::families
