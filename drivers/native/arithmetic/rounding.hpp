// Rounds an integer with a sticky bit to a floating-point format, once.
#pragma once

#include <cstdint>

#include "arithmetic/types.hpp"

namespace afflux::arithmetic {

// A binary format of IEEE 754.
struct Format {
    int exponent_bits;
    int fraction_bits;

    constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
    constexpr std::uint32_t infinity() const {
        return ((1u << exponent_bits) - 1) << fraction_bits;
    }
    // The quiet NaN whose sign and payload are zero.
    constexpr std::uint32_t nan() const { return infinity() | 1u << (fraction_bits - 1); }
    constexpr std::uint32_t sign() const { return 1u << (exponent_bits + fraction_bits); }
};

constexpr Format format_of(Dtype dtype) {
    return dtype == Dtype::Float16 ? Format{5, 10} : Format{8, dtype == Dtype::Bfloat16 ? 7 : 23};
}

// The bits of magnitude * 2**exponent, rounded once to nearest, ties to even. `sticky` means that
// the true magnitude is greater by less than one unit; `magnitude` must then have two bits more
// than the format keeps. Too large a number becomes infinite; one that rounds to zero becomes +0.
std::uint32_t round_to(Format format, bool negative, std::uint64_t magnitude, int exponent,
                       bool sticky);

// The same of a finite double.
std::uint32_t round_to(Format format, double value);

}  // namespace afflux::arithmetic
