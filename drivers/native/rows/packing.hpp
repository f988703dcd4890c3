// Rows put one after the other into blocks, and taken out again; the blocks may be shuffled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace afflux::rows {

// How rows of so many bytes lie in a room of whole blocks.
struct Packing {
    std::size_t row_bytes;
    std::size_t block_bytes;
    bool shuffled;
};

// Copies rows to their places: row i of `rows` becomes row places[i] of the room, before its blocks
// are shuffled. Elements that no row covers stay as they are. Throws std::out_of_range if a row
// would not lie in the room, std::invalid_argument if the room is not whole blocks.
void pack(std::span<const std::byte> rows, std::span<const std::int64_t> places,
          const Packing& packing, std::span<std::byte> room);

// Copies a room in the order from before its blocks were shuffled, as far as `out` goes. Throws
// std::invalid_argument if the room is less than that, or not whole blocks.
void unshuffle(std::span<const std::byte> room, std::size_t block_bytes, std::span<std::byte> out);

}  // namespace afflux::rows
