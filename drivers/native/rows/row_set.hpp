// A set of rows of a tensor, as a bitmap: the union of what several ranks have, and where in it
// each row lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace afflux::rows {

class RowSet {
  public:
    // None of so many rows.
    explicit RowSet(std::size_t rows) : rows_(rows), words_((rows + kBits - 1) / kBits) {}

    std::size_t rows() const { return rows_; }

    // Adds a row, which there must be.
    void add_row(std::size_t row) { words_[row / kBits] |= std::uint64_t{1} << row % kBits; }

    // Adds the rows whose fields are not zero; see `put_counts`.
    void add_counts(std::span<const std::int32_t> counts, unsigned bits);

    // Counts the rows. Rows that were added later are not in `numbers` and `positions` yet.
    std::size_t seal();

    // Writes the numbers of all rows, ascending. `seal` gives how many there are.
    void numbers(std::int64_t* out) const;

    // Writes for each of these rows, in any order, how many rows of the set are before it. Throws
    // std::out_of_range if one is not in the set.
    void positions(std::span<const std::int64_t> numbers, std::int64_t* out) const;

  private:
    static constexpr std::size_t kBits = 64;

    std::size_t rows_;
    std::vector<std::uint64_t> words_;
    std::vector<std::size_t> before_;  // by word: rows in the words before it
};

// Words of so many rows' counts: a multiple of 64.
std::size_t count_words(std::size_t rows, unsigned bits);

// Writes a field of so many bits for each row: 1 if it is among `numbers`, else 0. Field f of word
// w is row f * words + w, so rows next to each other are words next to each other, and a sum of
// these words over fewer than 2 ** bits ranks has in each field how many have the row. `counts`
// are zeros before. Throws std::out_of_range if there is no such row; `counts` are then of no use.
void put_counts(std::span<const std::int64_t> numbers, std::size_t rows, unsigned bits,
                std::span<std::int32_t> counts);

}  // namespace afflux::rows
