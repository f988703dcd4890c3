// Offers of ranks: what is summed, which are the largest, and what stays with a rank.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "selection/largest.hpp"
#include "selection/offers.hpp"
#include "tests/check.hpp"

using afflux::selection::largest;
using afflux::selection::largest_sums;
using afflux::selection::message_words;
using afflux::selection::pack;
using afflux::selection::settle;
using afflux::selection::Sums;

namespace {

constexpr unsigned kSeed = 5;

using Tensors = std::vector<std::vector<float>>;

std::vector<float> at(const std::vector<float>& tensor, const std::vector<std::int64_t>& places) {
    std::vector<float> values;
    for (const std::int64_t place : places) {
        values.push_back(tensor.at(static_cast<std::size_t>(place)));
    }
    return values;
}

std::vector<std::int32_t> messages_of(const Tensors& tensors, std::size_t count) {
    std::vector<std::int32_t> messages;
    for (const std::vector<float>& each : tensors) {
        std::vector<std::int32_t> message(message_words(each.size(), count), -1);
        const std::vector<std::int64_t> places = largest(each, count);
        pack(at(each, places), places, each.size(), message);
        messages.insert(messages.end(), message.begin(), message.end());
    }
    return messages;
}

Sums summed(const Tensors& tensors, std::size_t count) {
    return largest_sums(messages_of(tensors, count), tensors.size(), tensors[0].size(), count);
}

// Whole numbers, whose sums no rounding changes.
Tensors drawn(std::size_t ranks, std::size_t elements) {
    std::mt19937 random(kSeed);
    std::uniform_int_distribution<int> number(-1000, 1000);
    Tensors tensors(ranks, std::vector<float>(elements));
    for (std::vector<float>& each : tensors) {
        for (float& element : each) element = static_cast<float>(number(random));
        // All ranks have something large at the ends, and where segments meet.
        for (const std::size_t place :
             {std::size_t{0}, elements - 1, std::size_t{65'535}, std::size_t{65'536}}) {
            if (place < elements) each[place] = 2000;
        }
    }
    return tensors;
}

void test_the_largest_sums() {
    for (const std::size_t elements : {5, 1000, 65'536, 65'537, 200'000}) {
        for (const std::size_t ranks : {1, 2, 3, 8}) {
            for (const std::size_t count : {std::size_t{1}, std::size_t{4}, elements / 100 + 2}) {
                const Tensors tensors = drawn(ranks, elements);
                std::map<std::int64_t, float> sums;
                for (const std::vector<float>& each : tensors) {
                    for (const std::int64_t place : largest(each, count)) {
                        sums[place] += each[static_cast<std::size_t>(place)];
                    }
                }
                const Sums got = summed(tensors, count);
                std::erase_if(sums, [](const auto& each) { return each.second == 0; });
                std::vector<std::pair<float, std::int64_t>> order;
                for (const auto& [place, sum] : sums) order.emplace_back(-std::fabs(sum), place);
                std::sort(order.begin(), order.end());
                order.resize(std::min(order.size(), count));
                std::vector<std::int64_t> expected;
                for (const auto& each : order) expected.push_back(each.second);
                std::sort(expected.begin(), expected.end());
                CHECK(got.places == expected);
                for (std::size_t i = 0; i < expected.size(); ++i) {
                    CHECK(got.sums[i] == sums[expected[i]]);
                }
                // Elements that are taken are gone from the ranks that have offered them, and
                // nothing else is.
                for (const std::vector<float>& each : tensors) {
                    const std::vector<std::int64_t> own = largest(each, count);
                    const std::vector<float> before = at(each, own);
                    std::vector<float> left = before;
                    settle(left, own, got.places, got.quantum);
                    for (std::size_t i = 0; i < own.size(); ++i) {
                        const bool taken =
                            std::binary_search(expected.begin(), expected.end(), own[i]);
                        CHECK(left[i] == (taken ? 0 : before[i]));
                    }
                }
            }
        }
    }
}

void test_what_a_quantum_leaves_stays() {
    const Tensors tensors{{1.0F, 0x1.000002p-20F, 0x1.Cp-22F, 0}, {0, 0, 0, -1.0F}};
    const Sums got = summed(tensors, 3);
    // Two ranks: 23 bits below 2.
    CHECK(got.quantum == 0x1p-22);
    CHECK((got.places == std::vector<std::int64_t>{0, 1, 3}));
    CHECK((got.sums == std::vector<float>{1.0F, 0x1p-20F, -1.0F}));
    const std::vector<std::int64_t> places{0, 1, 2};
    std::vector<float> own = at(tensors[0], places);
    settle(own, places, std::vector<std::int64_t>{1, 2}, got.quantum);
    // The last one was rounded up, to two quanta.
    CHECK((own == std::vector<float>{1.0F, 0x1p-43F, -0x1p-24F}));
}

void test_numbers_at_the_edges() {
    const float most = std::numeric_limits<float>::max();
    const float least = std::numeric_limits<float>::denorm_min();
    CHECK(summed({{0, 0}, {0, 0}}, 1).places.empty());
    CHECK((summed({{0, least}, {0, least}}, 1).sums == std::vector<float>{2 * least}));
    CHECK((summed({{0, most}, {0, -most}}, 1).places.empty()));
    CHECK_THROWS(std::overflow_error, summed({{0, most}, {0, most}}, 1));
    CHECK_THROWS(std::domain_error, summed({{0, 1}, {std::nanf(""), 1}}, 1));
    CHECK_THROWS(std::domain_error, summed({{0, 1}, {-HUGE_VALF, 1}}, 1));
}

void test_what_is_no_message() {
    const std::vector<float> tensor(70'000, 1.0F);
    std::vector<std::int32_t> message = messages_of({tensor}, 3);
    CHECK_THROWS(std::invalid_argument, largest_sums(message, 2, tensor.size(), 3));
    CHECK_THROWS(std::invalid_argument, largest_sums(message, 1, tensor.size(), 4));
    CHECK_THROWS(std::invalid_argument, largest_sums(message, 1, tensor.size() - 1, 3));
    // Behind the head is how many lie in each of the two segments.
    message[4] = 2;
    CHECK_THROWS(std::invalid_argument, largest_sums(message, 1, tensor.size(), 3));
    // The third lies at 65,536 + 60,000 now.
    message[5] = 1;
    message[7] = 60'000;
    CHECK_THROWS(std::invalid_argument, largest_sums(message, 1, tensor.size(), 3));
    message[4] = -1;
    message[5] = 4;
    CHECK_THROWS(std::invalid_argument, largest_sums(message, 1, tensor.size(), 3));
    CHECK_THROWS(std::invalid_argument, pack(tensor, {}, tensor.size(), message));
}

std::string said_of(const std::vector<float>& tensor) {
    try {
        summed({std::vector<float>(tensor.size()), tensor}, 1);
    } catch (const std::domain_error& error) {
        return error.what();
    }
    return "";
}

void test_what_is_not_finite_is_named() {
    std::vector<float> tensor(70'000, 1.0F);
    tensor[69'999] = -HUGE_VALF;
    CHECK(said_of(tensor) == "rank 1 has an infinite element at 69999");
    tensor[3] = std::nanf("");
    CHECK(said_of(tensor) == "rank 1 has NaN at 3");
}

// Of tensors whose messages are as long, and wherever their largest elements are.
void test_tensors_of_different_sizes() {
    const Tensors tensors = {std::vector<float>(12, 1.0F), std::vector<float>(32, 1.0F)};
    const std::vector<std::int32_t> messages = messages_of(tensors, 3);
    for (const std::vector<float>& own : tensors) {
        std::string text;
        try {
            largest_sums(messages, 2, own.size(), 3);
        } catch (const std::invalid_argument& error) {
            text = error.what();
        }
        CHECK(text == "rank 0 offers 3 of 12 elements, rank 1 offers 3 of 32 elements");
    }
}

}  // namespace

int main() {
    test_the_largest_sums();
    test_what_a_quantum_leaves_stays();
    test_numbers_at_the_edges();
    test_what_is_no_message();
    test_tensors_of_different_sizes();
    test_what_is_not_finite_is_named();
}
