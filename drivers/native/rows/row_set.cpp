#include "rows/row_set.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>

namespace afflux::rows {
namespace {

// Without the sign, so that no sum of fields overflows.
constexpr unsigned kFieldWordBits = 31;

[[noreturn]] void refuse(std::int64_t number, std::size_t rows) {
    throw std::out_of_range("row " + std::to_string(number) + " of " + std::to_string(rows));
}

}  // namespace

void RowSet::add_counts(std::span<const std::int32_t> counts, unsigned bits) {
    const std::size_t chunks = counts.size() / kBits;
    const unsigned fields = kFieldWordBits / bits;
    for (unsigned field = 0; field < fields; ++field) {
        const auto mask = static_cast<std::int32_t>(((1U << bits) - 1) << field * bits);
        const std::size_t first = field * chunks;
        for (std::size_t chunk = 0; chunk < chunks && first + chunk < words_.size(); ++chunk) {
            const std::int32_t* at = counts.data() + chunk * kBits;
            std::uint64_t present = 0;
            for (std::size_t bit = 0; bit < kBits; ++bit) {
                present |= std::uint64_t{(at[bit] & mask) != 0} << bit;
            }
            words_[first + chunk] |= present;
        }
    }
    // There are fields behind the last row; they are zero unless a rank has put something there.
    if (rows_ % kBits != 0 && words_.back() >> rows_ % kBits != 0) {
        refuse(static_cast<std::int64_t>(rows_), rows_);
    }
}

std::size_t RowSet::seal() {
    before_.resize(words_.size());
    std::size_t count = 0;
    for (std::size_t word = 0; word < words_.size(); ++word) {
        before_[word] = count;
        count += static_cast<std::size_t>(std::popcount(words_[word]));
    }
    return count;
}

void RowSet::numbers(std::int64_t* out) const {
    for (std::size_t word = 0; word < words_.size(); ++word) {
        for (std::uint64_t left = words_[word]; left != 0; left &= left - 1) {
            *out++ = static_cast<std::int64_t>(word * kBits) + std::countr_zero(left);
        }
    }
}

void RowSet::positions(std::span<const std::int64_t> numbers, std::int64_t* out) const {
    for (const std::int64_t number : numbers) {
        const auto row = static_cast<std::size_t>(number);
        const std::uint64_t bit = std::uint64_t{1} << row % kBits;
        if (number < 0 || row >= rows_ || (words_[row / kBits] & bit) == 0) refuse(number, rows_);
        const int below = std::popcount(words_[row / kBits] & (bit - 1));
        *out++ = static_cast<std::int64_t>(before_[row / kBits]) + below;
    }
}

std::size_t count_words(std::size_t rows, unsigned bits) {
    constexpr std::size_t kMultiple = 64;
    const std::size_t fields = kFieldWordBits / bits;
    return (rows + fields * kMultiple - 1) / (fields * kMultiple) * kMultiple;
}

void put_counts(std::span<const std::int64_t> numbers, std::size_t rows, unsigned bits,
                std::span<std::int32_t> counts) {
    const std::size_t words = counts.size();
    std::size_t field = 0;
    for (const std::int64_t number : numbers) {
        const auto row = static_cast<std::size_t>(number);
        if (number < 0 || row >= rows) refuse(number, rows);
        // They ascend as a rule, so this is seldom a division.
        if (row - field * words >= words) field = row / words;
        counts[row - field * words] |= static_cast<std::int32_t>(1U << field * bits);
    }
}

}  // namespace afflux::rows
