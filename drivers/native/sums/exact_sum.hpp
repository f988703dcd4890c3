// The correctly rounded sum of a few floats, of any magnitude, in integers.
#pragma once

#include <cstdint>

#include "arithmetic/rounding.hpp"
#include "arithmetic/types.hpp"

namespace afflux::sums {

using arithmetic::Dtype;

// How a sum of elements becomes one: it is multiplied by 2**-scale, 0 to 30, and rounded once. A
// sum of zeros is -0 only if all are -0 and nobody's contribution is missing, as a missing one
// counts as +0.
struct Sum {
    Dtype dtype;  // a floating-point one
    int scale = 0;
    bool all_present = true;
};

// Takes elements as bits, in any order. It has a place for each bit of the widest exponent range,
// that of float32 and bfloat16.
class ExactSum {
  public:
    explicit ExactSum(const Sum& sum) : sum_(sum), format_(arithmetic::format_of(sum.dtype)) {}

    void add(std::uint32_t bits);

    // The bits of the result: NaN, which is always the quiet one without sign and payload, if there
    // is a NaN or are infinities of both signs; else an infinity if there is one; else the sum,
    // rounded to nearest, ties to even.
    std::uint32_t rounded() const;

  private:
    // Digits of 32 bits, least first, of the sum in units of 2**-149. Each has room for the carries
    // of 2**31 elements.
    static constexpr int kDigits = 9;

    std::uint32_t rounded_finite() const;

    Sum sum_;
    arithmetic::Format format_;
    std::int64_t digits_[kDigits] = {};
    bool nan_ = false, infinite_ = false, negative_infinite_ = false, negative_zeros_ = true;
};

}  // namespace afflux::sums
