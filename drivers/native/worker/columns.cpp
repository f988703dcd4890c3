#include "worker/columns.hpp"

#include <algorithm>
#include <string>

#include "worker/errors.hpp"

namespace afflux::worker {

class Columns::Run {
  public:
    // Of blocks of so many words.
    explicit Run(std::size_t words) : words_(words) {}

    // Adds a block whose integers lie at `offset`. Calls `flush` first if it does not follow.
    template <typename Flush>
    void add(std::size_t block, std::uint8_t low, std::ptrdiff_t offset, Flush flush) {
        if (size_ > 0 && (block != first_ + size_ || offset != offset_ + offset_of(size_))) {
            end(flush);
        }
        if (size_ == 0) {
            first_ = block;
            offset_ = offset;
        }
        exponents_[size_++] = static_cast<std::uint8_t>(255 - low);
    }

    template <typename Flush>
    void end(Flush flush) {
        if (size_ > 0) flush(first_, size_, exponents_.data(), offset_);
        size_ = 0;
    }

  private:
    std::ptrdiff_t offset_of(std::size_t blocks) const {
        return static_cast<std::ptrdiff_t>(blocks * words_);
    }

    std::size_t words_;
    std::size_t first_ = 0;
    std::size_t size_ = 0;
    std::ptrdiff_t offset_ = 0;
    std::array<std::uint8_t, wire::kLanesMax> exponents_{};
};

Columns::Columns(const Tensor& tensor, const Grid& grid)
    : blocks_(tensor),
      grid_(grid),
      span_slots_(std::max<std::size_t>(kSpanBlocks / grid.lanes, 1)),
      slots_(grid.slots),
      scanned_rows_((grid.slots + span_slots_ - 1) / span_slots_) {
    for (std::size_t slot = 0; slot < grid.slots; ++slot) {
        slots_[slot].own.fill(wire::kAbsent);
        for (std::size_t lane = 0; lane < grid.lanes; ++lane) {
            slots_[slot].own[lane] = next_word(0, slot, lane);
        }
    }
}

// Rows are scanned as columns reach them, so that a block is still in a cache when it is sent; but
// never the blocks of one slot alone: they are too few for the processor to fetch them ahead.
std::uint32_t Columns::next_word(std::size_t first_row, std::size_t slot, std::size_t lane) {
    std::size_t& scanned_rows = scanned_rows_[slot / span_slots_];
    std::size_t block = grid_.block(first_row, slot, lane);
    for (std::size_t row = first_row; row < grid_.rows && block < blocks_.size(); ++row) {
        if (row == scanned_rows) scan(scanned_rows++, slot / span_slots_);
        if (blocks_.present(block)) {
            return static_cast<std::uint32_t>(row << 8 | (255U - blocks_.exponent(block)));
        }
        block += grid_.row_blocks();
    }
    return wire::kAbsent;
}

void Columns::scan(std::size_t row, std::size_t span) {
    const std::size_t first = span * span_slots_;
    const std::size_t slots = std::min(span_slots_, grid_.slots - first);
    blocks_.scan(grid_.block(row, first, 0), slots * grid_.lanes);
}

std::uint32_t Columns::word_after(std::size_t block) {
    const std::size_t row = block / grid_.row_blocks();
    const std::size_t column = block % grid_.row_blocks() - grid_.first_block();
    return next_word(row + 1, column / grid_.lanes, column % grid_.lanes);
}

void Columns::opening_words(std::size_t slot, std::uint32_t* words) const {
    std::copy(slots_[slot].own.begin(), slots_[slot].own.end(), words);
}

wire::Present Columns::contribute(std::size_t slot, const std::uint32_t* agreed,
                                  std::uint32_t* words, std::int32_t* blocks) {
    SlotColumns& columns = slots_[slot];
    columns.agreements = 0;
    columns.present = 0;
    unsigned present = 0;
    unsigned sent = 0;
    std::ptrdiff_t offset = 0;
    const std::size_t words_sent = blocks_.sent_words();
    Run run(words_sent);
    const auto encode = [&](std::size_t first, std::size_t size, const std::uint8_t* exponents,
                            std::ptrdiff_t at) {
        blocks_.encode(first, size, exponents, blocks + at);
    };
    for (std::size_t lane = 0; lane < grid_.lanes; ++lane) {
        const std::uint32_t word = agreed[lane];
        const std::uint32_t mine = columns.own[lane];
        const std::size_t row = word >> 8;
        const auto low = static_cast<std::uint8_t>(word);
        if (word > mine || (row >= grid_.rows && word != wire::kAbsent)) {
            throw Misbehaved("slot " + std::to_string(slot) + ", lane " + std::to_string(lane) +
                             ": the agreed word " + hexadecimal(word, 8) +
                             " is not the least, as this worker sent " + hexadecimal(mine, 8) +
                             " of " + std::to_string(grid_.rows) + " rows");
        }
        if (word == wire::kAbsent) continue;
        const std::size_t block = grid_.block(row, slot, lane);
        if (block >= blocks_.size()) {
            throw Misbehaved("slot " + std::to_string(slot) + ", lane " + std::to_string(lane) +
                             ": the agreed word " + hexadecimal(word, 8) + " names no block");
        }
        present |= 1U << lane;
        columns.agreed[columns.agreements++] = {block, low};
        if (mine >> 8 != row) continue;
        sent |= 1U << lane;
        run.add(block, low, offset, encode);
        offset += static_cast<std::ptrdiff_t>(words_sent);
        columns.own[lane] = word_after(block);
    }
    run.end(encode);
    columns.present = static_cast<wire::Present>(present);
    std::copy(columns.own.begin(), columns.own.end(), words);
    return static_cast<wire::Present>(sent);
}

void Columns::take(std::size_t slot, wire::Present present, const std::int32_t* blocks) {
    const SlotColumns& columns = slots_[slot];
    if (present != columns.present) {
        throw Misbehaved("slot " + std::to_string(slot) + ": lanes " + hexadecimal(present, 4) +
                         " are present where " + hexadecimal(columns.present, 4) +
                         " were agreed on");
    }
    std::ptrdiff_t offset = 0;
    Run run(wire::kBlockElements);
    const auto decode = [&](std::size_t first, std::size_t size, const std::uint8_t*,
                            std::ptrdiff_t at) { blocks_.decode(first, size, blocks + at); };
    for (std::size_t index = 0; index < columns.agreements; ++index) {
        const Agreed& agreed = columns.agreed[index];
        run.add(agreed.block, agreed.low, offset, decode);
        offset += static_cast<std::ptrdiff_t>(wire::kBlockElements);
    }
    run.end(decode);
}

void Columns::keep(std::size_t slot) const {
    const SlotColumns& columns = slots_[slot];
    for (std::size_t index = 0; index < columns.agreements; ++index)
        blocks_.keep(columns.agreed[index].block);
}

}  // namespace afflux::worker
