// A tensor as columns of present blocks: what a worker gives to each round, and takes from it.
//
// This is section 4 of the protocol, seen from one worker and without packets' headers,
// loss or time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/blocks.hpp"
#include "worker/grid.hpp"

namespace afflux::worker {

class Columns {
  public:
    // The grid is that of the tensor's blocks; at least one row.
    Columns(const Tensor& tensor, const Grid& grid);

    // Writes the words of the slot's opening round.
    void opening_words(std::size_t slot, std::uint32_t* words) const;

    // Writes words and blocks for the round in which the blocks of the agreed words are summed.
    // `agreed` are words of the last result, not all absent. Returns the bitmap of the lanes whose
    // blocks were written. Throws Misbehaved if the words are not the minimum of anything with
    // ours.
    wire::Present contribute(std::size_t slot, const std::uint32_t* agreed, std::uint32_t* words,
                             std::int32_t* blocks);

    // Takes the sums of the round that the last `contribute` of this slot was for. Throws
    // Misbehaved if other lanes are present than were agreed on: the worker that named a block
    // sends it.
    void take(std::size_t slot, wire::Present present, const std::int32_t* blocks);

    // Lets the journal keep the sums of the slot that were taken last.
    void keep(std::size_t slot) const;

    // Blocks::not_summed.
    const std::vector<std::size_t>& not_summed() const { return blocks_.not_summed(); }

  private:
    // The agreement of the last result of a slot for one lane.
    struct Agreed {
        std::size_t block;
        std::uint8_t low;  // byte of the agreed word: 255 less the exponent
    };

    struct SlotColumns {
        std::array<std::uint32_t, wire::kLanesMax> own;  // words that this worker has sent last
        std::array<Agreed, wire::kLanesMax> agreed;      // those of the lanes in `present`
        std::size_t agreements = 0;
        wire::Present present = 0;
    };

    // Adjacent blocks are written, and taken, together.
    class Run;

    // Blocks of neighbouring slots are scanned together: about so many of a row.
    static constexpr std::size_t kSpanBlocks = 256;

    void scan(std::size_t row, std::size_t span);
    std::uint32_t next_word(std::size_t first_row, std::size_t slot, std::size_t lane);
    std::uint32_t word_after(std::size_t block);

    Blocks blocks_;
    Grid grid_;
    std::size_t span_slots_;
    std::vector<SlotColumns> slots_;
    std::vector<std::size_t> scanned_rows_;  // by span
};

}  // namespace afflux::worker
