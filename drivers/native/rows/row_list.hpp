// Lists of ascending row numbers in few bits, whose size follows from how many there are.
//
// A list of n of R rows is a bitmap of R bits, or, where that is less, the quasi-succinct form of
// P. Elias (Journal of the ACM 21, 1974) and R. Fano: with l = floor(log2(R / n)), the lower l bits
// of each number, one after the other, then for each number a 1 after as many zeros as its upper
// bits are more than those of the number before. Together less than n * (2 + log2(R / n)) bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "rows/row_set.hpp"

namespace afflux::rows {

// Words of 32 bits of a list of so many of so many rows.
std::size_t list_words(std::size_t count, std::size_t rows);

// Writes a list. `words` are `list_words` zeros. Throws std::out_of_range if the numbers do not
// ascend or there is no such row; `words` are then of no use.
void put_list(std::span<const std::int64_t> numbers, std::size_t rows,
              std::span<std::uint32_t> words);

// Writes the numbers of a list, of which there are `out.size()`. Throws std::out_of_range if that
// is not so, or if there is no such row.
void numbers_of_list(std::span<const std::uint32_t> words, std::size_t rows,
                     std::span<std::int64_t> out);

// Adds the rows of a list of `count` to a set of `rows` rows. Throws as `numbers_of_list`; some may
// have been added.
void add_list(std::span<const std::uint32_t> words, std::size_t count, std::size_t rows,
              RowSet& set);

}  // namespace afflux::rows
