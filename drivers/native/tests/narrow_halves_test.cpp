// Elements in 16 bits of floating point, against a search among all numbers of the type.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "narrow/halves.hpp"
#include "tests/check.hpp"

using afflux::narrow::Half;
using afflux::narrow::HalfType;

namespace {

// The value of a half's bits, from the type's definition.
float value_of(Half half, HalfType type) {
    const int mantissa_bits = type == HalfType::Float16 ? 10 : 7;
    const int bias = type == HalfType::Float16 ? 15 : 127;
    const int exponent = (half & 0x7FFF) >> mantissa_bits;
    const int mantissa = half & ((1 << mantissa_bits) - 1);
    const int whole = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
    const int power = std::max(exponent, 1) - bias - mantissa_bits;
    const auto magnitude = static_cast<float>(std::ldexp(whole, power));
    return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

// Every number of the type, what lies half way to the next, and what is next to that.
void test_rounding(HalfType type, Half most) {
    const float limit = value_of(most, type);
    std::vector<float> elements;
    std::vector<Half> expected;
    for (Half half = 0; half < most; ++half) {
        const float one = value_of(half, type);
        const float next = value_of(static_cast<Half>(half + 1), type);
        const auto middle = static_cast<float>((static_cast<double>(one) + next) / 2);
        const Half upper = half + 1;
        const Half even = half % 2 == 0 ? half : upper;
        const float beyond = std::nextafter(middle, next);
        const float before = std::nextafter(middle, one);
        for (const auto& [element, to] : {std::pair{one, half}, std::pair{middle, even},
                                          std::pair{beyond, upper}, std::pair{before, half}}) {
            // In bfloat16's least numbers there may be nothing between.
            if (element == middle && to != even) continue;
            elements.push_back(element);
            expected.push_back(to);
            elements.push_back(-element);
            expected.push_back(static_cast<Half>(to | 0x8000));
        }
    }
    elements.push_back(std::nextafter(limit, std::numeric_limits<float>::infinity()));
    expected.push_back(most);
    elements.push_back(-std::numeric_limits<float>::max());
    expected.push_back(static_cast<Half>(most | 0x8000));
    std::vector<Half> found(elements.size());
    const std::int32_t largest = afflux::narrow::to_halves(elements, type, limit, found);
    CHECK(largest == std::bit_cast<std::int32_t>(std::numeric_limits<float>::max()));
    CHECK(found == expected);
    // And back, into memory that has the sums in its second half.
    std::vector<float> averages(elements.size());
    Half* const second = reinterpret_cast<Half*>(averages.data()) + found.size();
    std::memcpy(second, found.data(), found.size() * sizeof(Half));
    std::vector<float> left = elements;
    afflux::narrow::from_halves({second, found.size()}, type, limit, 3, left, averages);
    for (std::size_t i = 0; i < elements.size(); ++i) {
        CHECK(averages[i] == value_of(found[i], type) / 3);
        CHECK(left[i] == elements[i] - value_of(found[i], type));
    }
}

void test_what_is_not_finite_shows(HalfType type) {
    for (const float bad : {std::numeric_limits<float>::infinity(), -std::nanf("")}) {
        std::vector<float> elements(100, 1.0F);
        std::vector<Half> found(100);
        const std::int32_t one = afflux::narrow::to_halves(elements, type, 100, found);
        CHECK(one == 0x3F800000);
        elements[37] = bad;
        CHECK(afflux::narrow::to_halves(elements, type, 100, found) >= 0x7F800000);
    }
}

}  // namespace

int main() {
    test_rounding(HalfType::Float16, 0x7BFF);
    test_rounding(HalfType::Float16, 0x6000);
    test_rounding(HalfType::Bfloat16, 0x7F7F);
    test_what_is_not_finite_shows(HalfType::Float16);
    test_what_is_not_finite_shows(HalfType::Bfloat16);
    return 0;
}
