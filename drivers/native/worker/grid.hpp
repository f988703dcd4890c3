// The grid of a tensor's blocks: row, slot, lane (protocol, section 3).
#pragma once

#include <cstddef>

namespace afflux::worker {

// Block b is at row, slot and lane with b = row * slots * lanes + slot * lanes + lane.
struct Grid {
    // Throws std::invalid_argument if there would be more than wire::kRowsMax rows.
    Grid(std::size_t blocks, std::size_t lanes, std::size_t job_slots);

    std::size_t row_blocks() const { return slots * lanes; }

    std::size_t lanes;
    std::size_t slots;  // active ones: at least 1
    std::size_t rows;   // of the longest columns; 0 for no blocks
};

}  // namespace afflux::worker
