// Lists of rows: what is written is read, in as many words as is said, and no other list is taken.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <vector>

#include "rows/row_list.hpp"
#include "tests/check.hpp"

using afflux::rows::add_list;
using afflux::rows::list_words;
using afflux::rows::numbers_of_list;
using afflux::rows::put_list;
using afflux::rows::RowSet;

namespace {

constexpr unsigned kSeed = 12;

std::vector<std::uint32_t> written(const std::vector<std::int64_t>& numbers, std::size_t rows) {
    std::vector<std::uint32_t> words(list_words(numbers.size(), rows));
    put_list(numbers, rows, words);
    return words;
}

void check_read(const std::vector<std::int64_t>& numbers, std::size_t rows) {
    const auto words = written(numbers, rows);
    std::vector<std::int64_t> read(numbers.size());
    numbers_of_list(words, rows, read);
    CHECK(read == numbers);
    if (rows > 1 << 20) return;
    RowSet set(rows);
    add_list(words, numbers.size(), rows, set);
    CHECK(set.seal() == numbers.size());
    set.numbers(read.data());
    CHECK(read == numbers);
}

void test_lists_are_read_as_written() {
    std::mt19937_64 random(kSeed);
    for (const std::size_t rows :
         {std::size_t{1}, std::size_t{31}, std::size_t{32}, std::size_t{33}, std::size_t{1000},
          std::size_t{12345}, std::size_t{1} << 33, (std::size_t{1} << 60) + 5}) {
        for (const std::size_t count : {0, 1, 2, 3, 7, 30, 100, 400, 999, 1000}) {
            if (count > rows) continue;
            std::set<std::int64_t> own;
            // The ends, too: the first rows, or the last ones.
            if (count > 0) own.insert(count % 2 == 0 ? 0 : static_cast<std::int64_t>(rows - 1));
            while (own.size() < count) own.insert(static_cast<std::int64_t>(random() % rows));
            check_read({own.begin(), own.end()}, rows);
        }
        std::vector<std::int64_t> run(std::min<std::size_t>(rows, 100));
        std::iota(run.begin(), run.end(), 0);
        check_read(run, rows);
        std::iota(run.begin(), run.end(), static_cast<std::int64_t>(rows - run.size()));
        check_read(run, rows);
    }
}

void test_a_list_is_as_small_as_stated() {
    CHECK(list_words(0, 1000) == 0);
    for (const std::size_t rows : {100, 5000, 1 << 20}) {
        for (std::size_t count = 1; count <= rows; count += 1 + count / 2) {
            const auto ratio = static_cast<double>(rows) / static_cast<double>(count);
            const double bits = static_cast<double>(count) * (2 + std::log2(ratio));
            const auto words = static_cast<double>(list_words(count, rows));
            CHECK(words <= bits / 32 + 2);
            CHECK(words <= static_cast<double>((rows + 31) / 32));
        }
    }
}

void test_other_lists_are_refused() {
    for (const std::size_t rows : {100, 4000}) {
        const std::vector<std::int64_t> numbers{3, 40, 41, 99};
        const auto words = written(numbers, rows);
        std::vector<std::int64_t> read(numbers.size());
        auto more = words;
        more.back() |= 1U << 31;
        auto fewer = words;
        for (auto& word : fewer) word = 0;
        auto other = words;
        other.push_back(0);
        for (const auto& wrong : {more, fewer, other}) {
            CHECK_THROWS(std::out_of_range, numbers_of_list(wrong, rows, read));
        }
        std::vector<std::uint32_t> room(words.size());
        CHECK_THROWS(std::out_of_range,
                     put_list(std::vector<std::int64_t>{3, 40, 40, 99}, rows, room));
        CHECK_THROWS(std::out_of_range,
                     put_list(std::vector<std::int64_t>{-1, 4, 40, 99}, rows, room));
        const auto beyond = static_cast<std::int64_t>(rows);
        CHECK_THROWS(std::out_of_range,
                     put_list(std::vector<std::int64_t>{3, 4, 40, beyond}, rows, room));
    }
}

}  // namespace

int main() {
    test_lists_are_read_as_written();
    test_a_list_is_as_small_as_stated();
    test_other_lists_are_refused();
}
