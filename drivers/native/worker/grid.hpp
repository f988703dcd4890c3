// The grid of a tensor's blocks: row, aggregator, slot, lane (protocol, section 3).
#pragma once

#include <cstddef>

namespace afflux::worker {

// Which columns of a tensor one aggregator has, of several that share them.
struct Share {
    std::size_t own = 0;  // number of the aggregator
    std::size_t of = 1;   // aggregators that share this tensor's columns

    friend bool operator==(const Share&, const Share&) = default;
};

// How many of so many aggregators share the columns of a tensor: no more than it has packets.
std::size_t sharing(std::size_t blocks, std::size_t lanes, std::size_t aggregators);

// One aggregator's part of the grid. Its blocks are those with
// b = ((row * of + own) * slots + slot) * lanes + lane.
struct Grid {
    // Throws std::invalid_argument if there would be more than wire::kRowsMax rows, or the share is
    // none.
    Grid(std::size_t blocks, std::size_t lanes, std::size_t job_slots, Share share = {});

    // Blocks from a row to the next, and before the own ones of the first row.
    std::size_t row_blocks() const { return share.of * slots * lanes; }
    std::size_t first_block() const { return share.own * slots * lanes; }

    std::size_t block(std::size_t row, std::size_t slot, std::size_t lane) const {
        return row * row_blocks() + first_block() + slot * lanes + lane;
    }

    std::size_t lanes;
    Share share;
    std::size_t slots;  // active ones of each aggregator: at least 1
    std::size_t rows;   // of the longest columns; 0 for no blocks
};

}  // namespace afflux::worker
