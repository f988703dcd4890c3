// The largest elements, against sorting them all.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "selection/largest.hpp"
#include "selection/sample.hpp"
#include "selection/scan.hpp"
#include "tests/check.hpp"

using afflux::selection::largest;
using afflux::selection::sampled_places;

namespace {

constexpr unsigned kSeed = 12;

std::uint32_t magnitude_of(float element) {
    return std::bit_cast<std::uint32_t>(element) & 0x7FFFFFFF;
}

void check_largest(const std::vector<float>& elements, std::size_t count) {
    const std::vector<std::int64_t> places = largest(elements, count);
    CHECK(places.size() == count);
    CHECK(std::adjacent_find(places.begin(), places.end(), std::greater_equal<>()) == places.end());
    std::vector<std::uint32_t> found;
    for (const std::int64_t place : places) {
        found.push_back(magnitude_of(elements.at(static_cast<std::size_t>(place))));
    }
    std::vector<std::uint32_t> all;
    for (const float each : elements) all.push_back(magnitude_of(each));
    std::sort(all.begin(), all.end(), std::greater<>());
    std::sort(found.begin(), found.end(), std::greater<>());
    CHECK(std::equal(found.begin(), found.end(), all.begin()));
    // Of those that are equal to the least of them the first are taken.
    const std::uint32_t least = all[count - 1];
    std::int64_t after = -1;
    for (const std::int64_t place : places) {
        if (magnitude_of(elements[static_cast<std::size_t>(place)]) == least) after = place;
    }
    std::int64_t equal = 0;
    for (std::int64_t i = 0; i <= after; ++i) {
        equal += magnitude_of(elements[static_cast<std::size_t>(i)]) == least;
    }
    CHECK(equal == std::count(found.begin(), found.end(), least));
    // Whatever is guessed, the same are found.
    CHECK(largest(elements, count) == places);
    for (const std::uint32_t of_guess :
         {1U, least / 2, least, least + 1, 0x7F800000U, 0x7FFFFFFFU}) {
        auto guess = static_cast<afflux::selection::Magnitude>(std::min(of_guess, 0x7FFFFFFFU));
        for (int step = 0; step < 3; ++step) CHECK(largest(elements, count, &guess) == places);
        CHECK(guess >= 0);
        CHECK(static_cast<std::uint32_t>(guess) <= least);
    }
}

void test_random_tensors() {
    std::mt19937 random(kSeed);
    std::normal_distribution<float> normal;
    for (const std::size_t size : {1, 63, 64, 65, 1000, 70'001, 200'000}) {
        std::vector<float> elements(size);
        for (float& each : elements) each = normal(random);
        for (const std::size_t count : {std::size_t{1}, size / 1000 + 1, size / 2 + 1, size}) {
            check_largest(elements, count);
        }
    }
}

// Tensors whose sample says nothing, or the wrong thing, of the rest.
void test_tensors_that_deceive_a_sample() {
    constexpr std::size_t kSize = 100'000;
    std::vector<float> elements(kSize);
    check_largest(elements, 100);  // all equal
    for (std::size_t i = 0; i < kSize; ++i) elements[i] = static_cast<float>(i);
    check_largest(elements, 1000);  // each chunk is larger than all before
    std::fill(elements.begin(), elements.end(), 0.0F);
    std::fill(elements.begin() + 500, elements.begin() + 900, -2.0F);
    check_largest(elements, 300);  // many that are as large
    check_largest(elements, 1000);
    for (std::size_t i = 0; i < kSize; i += 9) elements[i] = 5.0F;
    check_largest(elements, 10);  // a period like the sample's
}

// All that is large lies where the sample looks, so that it promises more large elements than
// there are.
void test_a_sample_that_promises_too_much() {
    constexpr std::size_t kSize = 100'000;
    const std::vector<std::size_t> places = sampled_places(kSize);
    CHECK(places.size() > 1000);
    std::vector<float> elements(kSize, 0.5F);
    for (std::size_t i = 0; i < 1000; ++i) elements[places[i]] = 9.0F;
    check_largest(elements, 999);
    check_largest(elements, 1000);
    check_largest(elements, 1001);
    check_largest(elements, 2000);
}

// Numbers of which each is the next after the one before: what is dropped and what is kept differ
// by one bit.
void test_consecutive_numbers() {
    constexpr std::size_t kSize = 10'000;
    for (const std::uint32_t first : {0U, 1U, 0x3F7F0000U, 0x7F7FA000U}) {
        std::vector<float> ascending(kSize);
        for (std::size_t i = 0; i < kSize; ++i) {
            ascending[i] = std::bit_cast<float>(first + static_cast<std::uint32_t>(i));
        }
        const std::vector<float> descending(ascending.rbegin(), ascending.rend());
        // Rises, then falls: where it falls, each of the least kept comes once more.
        std::vector<float> both = ascending;
        both.insert(both.end(), descending.begin(), descending.end());
        std::vector<float> mixed = ascending;
        std::shuffle(mixed.begin(), mixed.end(), std::mt19937(kSeed));
        for (const std::size_t count : {1, 100, 1000, 9'999}) {
            check_largest(ascending, count);
            check_largest(descending, count);
            check_largest(both, count);
            check_largest(mixed, count);
        }
    }
}

void test_fewer_elements_that_are_not_zero_than_wanted() {
    for (const std::size_t size : {1000, 100'000}) {
        std::vector<float> elements(size);
        check_largest(elements, 10);
        elements[size / 2] = -1e-40F;
        elements[size - 1] = std::numeric_limits<float>::denorm_min();
        check_largest(elements, 1);
        check_largest(elements, 2);
        check_largest(elements, 500);
        check_largest(elements, size);
    }
}

void test_what_is_no_number_is_larger_than_all() {
    std::vector<float> elements(100'000, 1.0F);
    elements[77] = -std::numeric_limits<float>::infinity();
    elements[90'000] = std::numeric_limits<float>::quiet_NaN();
    elements[3] = std::numeric_limits<float>::max();
    CHECK(largest(elements, 1) == std::vector<std::int64_t>{90'000});
    CHECK(largest(elements, 3) == (std::vector<std::int64_t>{3, 77, 90'000}));
    std::fill(elements.begin(), elements.end(), std::numeric_limits<float>::quiet_NaN());
    check_largest(elements, 1);
    check_largest(elements, 1000);
}

}  // namespace

int main() {
    // With the processor's vectors, and without.
    for (const bool portable : {false, true}) {
        afflux::selection::scan_portably(portable);
        test_random_tensors();
        test_tensors_that_deceive_a_sample();
        test_a_sample_that_promises_too_much();
        test_consecutive_numbers();
        test_fewer_elements_that_are_not_zero_than_wanted();
        test_what_is_no_number_is_larger_than_all();
    }
}
