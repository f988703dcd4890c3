// The union of rows, against a set that is obviously right.
#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <stdexcept>
#include <vector>

#include "rows/row_set.hpp"
#include "tests/check.hpp"

using afflux::rows::count_words;
using afflux::rows::put_counts;
using afflux::rows::RowSet;

namespace {

constexpr unsigned kSeed = 11;

void check_same(RowSet& set, const std::set<std::int64_t>& want) {
    CHECK(set.seal() == want.size());
    std::vector<std::int64_t> numbers(want.size());
    set.numbers(numbers.data());
    CHECK(std::equal(numbers.begin(), numbers.end(), want.begin(), want.end()));
    std::vector<std::int64_t> positions(numbers.size());
    set.positions(numbers, positions.data());
    for (std::size_t i = 0; i < positions.size(); ++i) {
        CHECK(positions[i] == static_cast<std::int64_t>(i));
    }
}

void test_both_forms_give_the_union() {
    std::mt19937 random(kSeed);
    for (const std::size_t rows : {1, 63, 64, 65, 1000, 12345}) {
        for (const unsigned ranks : {1U, 2U, 3U, 4U, 7U, 8U, 64U}) {
            unsigned bits = 1;
            while (ranks >> bits != 0) ++bits;
            RowSet listed(rows);
            RowSet counted(rows);
            std::set<std::int64_t> want;
            std::vector<std::int32_t> sums(count_words(rows, bits));
            for (unsigned rank = 0; rank < ranks; ++rank) {
                std::set<std::int64_t> own{static_cast<std::int64_t>(rows) - 1};
                const std::size_t most = rank % 2 == 0 ? rows / 3 : 2;
                for (std::size_t i = 0; i < most; ++i) {
                    own.insert(static_cast<std::int64_t>(random() % rows));
                }
                const std::vector<std::int64_t> numbers(own.begin(), own.end());
                for (const std::int64_t number : numbers) {
                    listed.add_row(static_cast<std::size_t>(number));
                }
                std::vector<std::int32_t> counts(sums.size());
                put_counts(numbers, rows, bits, counts);
                for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += counts[i];
                want.insert(own.begin(), own.end());
            }
            check_same(listed, want);
            counted.add_counts(sums, bits);
            check_same(counted, want);
        }
    }
}

void test_what_is_no_row_is_refused() {
    RowSet set(100);
    std::int64_t position = 0;
    CHECK(set.seal() == 0);
    for (const std::int64_t none : {5, -1, 100, 1 << 30}) {
        CHECK_THROWS(std::out_of_range, set.positions(std::vector<std::int64_t>{none}, &position));
    }
    std::vector<std::int32_t> counts(count_words(100, 3));
    CHECK_THROWS(std::out_of_range, put_counts(std::vector<std::int64_t>{100}, 100, 3, counts));
    // Row 100 of 100, as another rank might say.
    std::fill(counts.begin(), counts.end(), 0);
    const std::size_t words = counts.size();
    counts[100 % words] = 1 << 3 * (100 / words);
    CHECK_THROWS(std::out_of_range, set.add_counts(counts, 3));
}

}  // namespace

int main() {
    test_both_forms_give_the_union();
    test_what_is_no_row_is_refused();
}
