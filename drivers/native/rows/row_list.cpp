#include "rows/row_list.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace afflux::rows {
namespace {

constexpr std::size_t kWordBits = 32;

std::size_t words_of(std::size_t bits) { return (bits + kWordBits - 1) / kWordBits; }

struct Form {
    Form(std::size_t count, std::size_t rows)
        : low_bits(count == 0 || rows < 2 * count
                       ? 0
                       : static_cast<unsigned>(std::bit_width(rows / count)) - 1),
          low_words(words_of(count * low_bits)),
          high_bits(count == 0 ? 0 : count + ((rows - 1) >> low_bits)),
          words(low_words + words_of(high_bits)),
          bitmap(count > 0 && words_of(rows) <= words) {
        if (bitmap) words = words_of(rows);
    }

    unsigned low_bits;
    std::size_t low_words;
    std::size_t high_bits;
    std::size_t words;
    bool bitmap;
};

[[noreturn]] void refuse() { throw std::out_of_range("a list is not of as many rows as it says"); }

void check(bool right) {
    if (!right) refuse();
}

// Calls `take` for each bit that is set.
template <typename Take>
void each_bit(std::span<const std::uint32_t> words, Take take) {
    for (std::size_t word = 0; word < words.size(); ++word) {
        for (std::uint32_t left = words[word]; left != 0; left &= left - 1) {
            take(word * kWordBits + static_cast<std::size_t>(std::countr_zero(left)));
        }
    }
}

// Calls `take` for each number of a list, in ascending order.
template <typename Take>
void each_number(std::span<const std::uint32_t> words, std::size_t count, std::size_t rows,
                 Take take) {
    const Form form(count, rows);
    check(words.size() == form.words);
    std::size_t found = 0;
    const auto take_one = [&](std::size_t number) {
        check(found < count && number < rows);
        take(number);
        ++found;
    };
    if (form.bitmap) {
        each_bit(words, take_one);
    } else {
        const std::uint64_t mask = (std::uint64_t{1} << form.low_bits) - 1;
        std::size_t low_at = 0;
        each_bit(words.subspan(form.low_words), [&](std::size_t bit) {
            check(found < count);
            std::uint64_t low = 0;
            for (unsigned done = 0; done < form.low_bits;) {
                const std::size_t within = low_at % kWordBits;
                const auto taken = static_cast<unsigned>(
                    std::min<std::size_t>(form.low_bits - done, kWordBits - within));
                const std::uint64_t part = words[low_at / kWordBits] >> within;
                low |= part << done;
                done += taken;
                low_at += taken;
            }
            low &= mask;
            take_one((bit - found) << form.low_bits | low);
        });
    }
    check(found == count);
}

}  // namespace

std::size_t list_words(std::size_t count, std::size_t rows) { return Form(count, rows).words; }

void put_list(std::span<const std::int64_t> numbers, std::size_t rows,
              std::span<std::uint32_t> words) {
    const Form form(numbers.size(), rows);
    check(words.size() == form.words);
    const std::uint64_t mask = (std::uint64_t{1} << form.low_bits) - 1;
    const auto set = [&](std::size_t bit) { words[bit / kWordBits] |= 1U << bit % kWordBits; };
    std::size_t low_at = 0;
    std::int64_t before = -1;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        const std::int64_t number = numbers[i];
        check(number > before && static_cast<std::size_t>(number) < rows);
        before = number;
        const auto row = static_cast<std::size_t>(number);
        if (form.bitmap) {
            set(row);
            continue;
        }
        for (std::uint64_t low = row & mask, left = form.low_bits; left > 0;) {
            const std::size_t within = low_at % kWordBits;
            const std::size_t taken = std::min<std::size_t>(left, kWordBits - within);
            words[low_at / kWordBits] |= static_cast<std::uint32_t>(low << within);
            low >>= taken;
            left -= taken;
            low_at += taken;
        }
        set(form.low_words * kWordBits + (row >> form.low_bits) + i);
    }
}

void numbers_of_list(std::span<const std::uint32_t> words, std::size_t rows,
                     std::span<std::int64_t> out) {
    std::int64_t* at = out.data();
    each_number(words, out.size(), rows,
                [&](std::size_t number) { *at++ = static_cast<std::int64_t>(number); });
}

void add_list(std::span<const std::uint32_t> words, std::size_t count, std::size_t rows,
              RowSet& set) {
    check(rows == set.rows());
    each_number(words, count, rows, [&](std::size_t number) { set.add_row(number); });
}

}  // namespace afflux::rows
