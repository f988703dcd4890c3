// Rows in shuffled blocks: each block has one place, and packing and unpacking returns the rows.
#include <cstdint>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

#include "rows/packing.hpp"
#include "rows/shuffle.hpp"
#include "tests/check.hpp"

using afflux::rows::pack;
using afflux::rows::Packing;
using afflux::rows::Shuffle;
using afflux::rows::unshuffle;

namespace {

constexpr unsigned kSeed = 13;

void test_a_shuffle_is_a_permutation() {
    for (std::size_t count = 1; count < 700; ++count) {
        const Shuffle shuffle(count);
        std::vector<bool> taken(count);
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t place = shuffle(i);
            CHECK(place < count && !taken[place]);
            taken[place] = true;
        }
    }
}

// Any class of numbers with one remainder is spread over any other such classes of places.
void test_a_shuffle_spreads_strides() {
    for (const std::size_t count : {std::size_t{1} << 14, std::size_t{20'000}}) {
        const Shuffle shuffle(count);
        for (const std::size_t stride : {1, 2, 4, 5, 16, 64}) {
            for (const std::size_t shards : {2, 4, 8}) {
                std::vector<std::size_t> loads(shards);
                std::size_t numbers = 0;
                for (std::size_t i = 0; i < count; i += stride, ++numbers) {
                    ++loads[shuffle(i) % shards];
                }
                const double mean = static_cast<double>(numbers) / static_cast<double>(shards);
                for (const std::size_t load : loads) {
                    const double off = static_cast<double>(load) - mean;
                    // Five standard deviations of a random choice.
                    CHECK(off * off <= 25 * mean);
                }
            }
        }
    }
}

void test_what_is_packed_comes_out() {
    constexpr std::size_t kBlock = 32;
    std::mt19937 random(kSeed);
    for (const std::size_t row_bytes : {1, 4, 8, 12, 32, 40, 128}) {
        for (const bool shuffled : {false, true}) {
            const std::size_t rows = 57;
            const std::size_t bytes = (rows * row_bytes + 3 * kBlock - 1) / kBlock * kBlock;
            std::vector<std::byte> room(bytes);
            std::vector<std::byte> want(bytes);
            std::vector<std::byte> values;
            std::vector<std::int64_t> places;
            for (std::size_t place = 0; place < rows; place += 1 + random() % 3) {
                places.push_back(static_cast<std::int64_t>(place));
                for (std::size_t i = 0; i < row_bytes; ++i) {
                    values.push_back(static_cast<std::byte>(random()));
                    want[place * row_bytes + i] = values.back();
                }
            }
            const Packing packing{row_bytes, kBlock, shuffled};
            pack(values, places, packing, room);
            if (!shuffled) {
                CHECK(room == want);
                continue;
            }
            CHECK(room != want);
            for (const std::size_t out_bytes : {bytes, rows * row_bytes}) {
                std::vector<std::byte> out(out_bytes);
                unshuffle(room, kBlock, out);
                CHECK(std::equal(out.begin(), out.end(), want.begin()));
            }
        }
    }
}

void test_what_does_not_fit_is_refused() {
    std::vector<std::byte> room(64);
    const std::vector<std::byte> row(8);
    for (const bool shuffled : {false, true}) {
        const Packing packing{8, 32, shuffled};
        for (const std::int64_t place : {-1, 8, 1 << 30}) {
            CHECK_THROWS(std::out_of_range,
                         pack(row, std::vector<std::int64_t>{place}, packing, room));
        }
        CHECK_THROWS(std::invalid_argument,
                     pack(row, std::vector<std::int64_t>{1, 2}, packing, room));
    }
    CHECK_THROWS(std::invalid_argument,
                 pack(row, std::vector<std::int64_t>{1}, {8, 48, true}, room));
    std::vector<std::byte> out(65);
    CHECK_THROWS(std::invalid_argument, unshuffle(room, 32, out));
    CHECK_THROWS(std::invalid_argument, unshuffle(room, 48, {out.data(), 64}));
}

}  // namespace

int main() {
    test_a_shuffle_is_a_permutation();
    test_a_shuffle_spreads_strides();
    test_what_is_packed_comes_out();
    test_what_does_not_fit_is_refused();
}
