// Elements as narrow integers, against arithmetic in double that takes one element after the other.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "narrow/fixed_point.hpp"
#include "tests/check.hpp"

using afflux::narrow::Form;

namespace {

constexpr unsigned kSeed = 5;

using Tensor = std::vector<float>;

double largest_of(const std::vector<Tensor>& ranks, std::size_t first, std::size_t last) {
    double most = 0;
    for (const Tensor& each : ranks) {
        for (std::size_t i = first; i < std::min(last, each.size()); ++i) {
            most = std::max(most, std::abs(static_cast<double>(each[i])));
        }
    }
    return most;
}

// The least power of two in multiples of which the largest is not above `most`.
double unit_of(double largest, double most) {
    double unit = std::ldexp(1.0, -126);
    while (std::nearbyint(largest / unit) > most) unit *= 2;
    return unit;
}

void check_sum(std::vector<Tensor> ranks, const Form& form) {
    const std::size_t size = ranks.front().size();
    const std::vector<Tensor> before = ranks;
    std::vector<std::int32_t> agreed(form.groups(size));
    for (const Tensor& each : ranks) {
        std::vector<std::int32_t> own(agreed.size());
        afflux::narrow::magnitudes(each, form, own);
        for (std::size_t g = 0; g < own.size(); ++g) agreed[g] = std::max(agreed[g], own[g]);
    }
    std::vector<std::uint32_t> sums(form.words(size));
    for (const Tensor& each : ranks) {
        std::vector<std::int32_t> words(sums.size());
        afflux::narrow::pack(each, agreed, form, words);
        // As an aggregator does.
        for (std::size_t w = 0; w < words.size(); ++w) {
            sums[w] += static_cast<std::uint32_t>(words[w]);
        }
    }
    for (Tensor& each : ranks) {
        // The sums lie where the averages will.
        Tensor averages(size);
        float* const last = averages.data() + (size - sums.size());
        if (size != 0) std::memcpy(last, sums.data(), sums.size() * sizeof(float));
        const std::vector<std::int32_t> read(sums.begin(), sums.end());
        const bool apart = &each == &ranks.front();
        const std::span<const std::int32_t> from =
            apart ? std::span<const std::int32_t>(read)
                  : std::span(reinterpret_cast<const std::int32_t*>(last), sums.size());
        afflux::narrow::unpack(from, agreed, form, static_cast<int>(ranks.size()), each, averages);
        for (std::size_t i = 0; i < size; ++i) {
            const std::size_t first = i - i % form.group_elements();
            const double unit =
                unit_of(largest_of(before, first, first + form.group_elements()), form.most);
            double sum = 0;
            for (const Tensor& other : before) sum += std::nearbyint(other[i] / unit);
            const auto average =
                static_cast<float>(static_cast<float>(sum) / static_cast<float>(ranks.size()));
            CHECK(averages[i] == average * static_cast<float>(unit));
            const Tensor& own = before[static_cast<std::size_t>(&each - ranks.data())];
            CHECK(each[i] == own[i] - std::nearbyint(own[i] / unit) * unit);
        }
    }
}

std::vector<Tensor> drawn(std::size_t ranks, std::size_t size, double spread) {
    std::mt19937 random(kSeed);
    std::normal_distribution<double> normal;
    std::vector<Tensor> tensors(ranks, Tensor(size));
    for (Tensor& each : tensors) {
        for (float& x : each)
            x = static_cast<float>(normal(random) * std::exp2(spread * normal(random)));
    }
    return tensors;
}

// The largest integers that fields hold at so many ranks.
Form widest(unsigned fields, int ranks) {
    const std::int64_t largest = (std::int64_t{1} << (32 / fields - 1)) - 1;
    const std::int64_t most = std::min<std::int64_t>(largest, 1 << 24) / ranks;
    return {fields, static_cast<std::int32_t>(std::min<std::int64_t>(most, (1 << 22) - 1))};
}

void test_forms_and_sizes() {
    for (unsigned fields = 1; fields <= 8; ++fields) {
        for (const std::size_t ranks : {1, 2, 3}) {
            const Form form = widest(fields, static_cast<int>(ranks));
            if (form.most < 2) continue;
            for (const std::size_t size : {0, 1, 63, 64, 65, 500, 1100}) {
                check_sum(drawn(ranks, size, 0), form);
                check_sum(drawn(ranks, size, 12), form);
            }
        }
    }
}

// All ranks have the largest, of either sign: nothing may run over into the next field.
void test_fields_that_are_full() {
    for (unsigned fields = 1; fields <= 8; ++fields) {
        for (const float sign : {1.0F, -1.0F}) {
            const Form form = widest(fields, 2);
            if (form.most < 2) continue;
            Tensor tensor(form.group_elements() + 70, sign * static_cast<float>(form.most));
            for (std::size_t i = 0; i < tensor.size(); i += 3) tensor[i] = -tensor[i];
            check_sum({tensor, tensor}, form);
            // As large as can be; and what rounds up beyond the fields.
            const float largest = std::nextafter(0x1p127F, 0.0F);
            for (float& x : tensor) x = std::copysign(largest, x);
            check_sum({tensor, tensor}, form);
        }
    }
}

void test_the_smallest_stay() {
    const Form form{3, 127};
    Tensor tensor(200, std::numeric_limits<float>::denorm_min());
    check_sum({tensor, tensor}, form);
    tensor[100] = std::numeric_limits<float>::min();
    check_sum({tensor, tensor}, form);
    check_sum({Tensor(200), tensor}, form);
}

void test_what_is_not_finite_shows() {
    const Form form{3, 127};
    for (const float bad : {std::numeric_limits<float>::infinity(), -std::nanf("")}) {
        Tensor tensor(500, 1.0F);
        tensor[499] = bad;
        std::vector<std::int32_t> found(form.groups(500));
        afflux::narrow::magnitudes(tensor, form, found);
        CHECK(found[0] < 0x7F800000 && found[2] >= 0x7F800000);
    }
}

}  // namespace

int main() {
    test_forms_and_sizes();
    test_fields_that_are_full();
    test_the_smallest_stay();
    test_what_is_not_finite_shows();
    return 0;
}
