#include "rows/row_list.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace afflux::rows {
namespace {

constexpr unsigned kWordBits = 32;

std::size_t words_of(std::size_t bits) {
    return (bits + kWordBits - 1) / kWordBits;
}

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

[[noreturn]] void refuse() {
    throw std::out_of_range("a list is not of as many rows as it says");
}

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

// Reads numbers of a few bits each, one after the other.
class LowBits {
  public:
    LowBits(std::span<const std::uint32_t> words, unsigned bits)
        : next_(words.data()), end_(words.data() + words.size()), bits_(bits) {}

    std::uint64_t read() {
        if (bits_ <= kWordBits) return take(bits_);
        const std::uint64_t low = take(kWordBits);
        return low | take(bits_ - kWordBits) << kWordBits;
    }

  private:
    std::uint64_t take(unsigned bits) {
        if (held_ < bits) {
            check(next_ != end_);
            word_ |= std::uint64_t{*next_++} << held_;
            held_ += kWordBits;
        }
        const std::uint64_t taken = word_ & ((std::uint64_t{1} << bits) - 1);
        word_ >>= bits;
        held_ -= bits;
        return taken;
    }

    const std::uint32_t* next_;
    const std::uint32_t* end_;
    unsigned bits_;
    std::uint64_t word_ = 0;
    unsigned held_ = 0;  // less than 64
};

// Writes them.
class LowBitsWriter {
  public:
    explicit LowBitsWriter(std::uint32_t* words, unsigned bits) : next_(words), bits_(bits) {}

    void write(std::uint64_t number) {
        put(number, std::min<unsigned>(bits_, kWordBits));
        if (bits_ > kWordBits) put(number >> kWordBits, bits_ - kWordBits);
    }

    void end() {
        if (held_ > 0) *next_ = static_cast<std::uint32_t>(word_);
    }

  private:
    void put(std::uint64_t number, unsigned bits) {
        word_ |= (number & ((std::uint64_t{1} << bits) - 1)) << held_;
        held_ += bits;
        if (held_ < kWordBits) return;
        *next_++ = static_cast<std::uint32_t>(word_);
        word_ >>= kWordBits;
        held_ -= kWordBits;
    }

    std::uint32_t* next_;
    unsigned bits_;
    std::uint64_t word_ = 0;
    unsigned held_ = 0;  // less than 32
};

// Calls `take` for each number of a list, in ascending order.
template <typename Take>
void each_number(std::span<const std::uint32_t> words, std::size_t count, std::size_t rows,
                 Take take) {
    const Form form(count, rows);
    check(words.size() == form.words);
    std::size_t found = 0;
    if (form.bitmap) {
        each_bit(words, [&](std::size_t number) {
            check(found++ < count && number < rows);
            take(number);
        });
    } else {
        LowBits low(words.first(form.low_words), form.low_bits);
        each_bit(words.subspan(form.low_words), [&](std::size_t bit) {
            check(found < count);
            const std::size_t number = (bit - found++) << form.low_bits | low.read();
            check(number < rows);
            take(number);
        });
    }
    check(found == count);
}

}  // namespace

std::size_t list_words(std::size_t count, std::size_t rows) {
    return Form(count, rows).words;
}

void put_list(std::span<const std::int64_t> numbers, std::size_t rows,
              std::span<std::uint32_t> words) {
    const Form form(numbers.size(), rows);
    check(words.size() == form.words);
    LowBitsWriter low(words.data(), form.low_bits);
    std::uint32_t* high = words.data() + form.low_words;
    std::int64_t before = -1;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        const std::int64_t number = numbers[i];
        check(number > before && static_cast<std::size_t>(number) < rows);
        before = number;
        const auto row = static_cast<std::size_t>(number);
        if (form.bitmap) {
            words[row / kWordBits] |= 1U << row % kWordBits;
            continue;
        }
        low.write(row);
        const std::size_t bit = (row >> form.low_bits) + i;
        high[bit / kWordBits] |= 1U << bit % kWordBits;
    }
    if (!form.bitmap) low.end();
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
