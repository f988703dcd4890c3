#include "rows/packing.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "rows/shuffle.hpp"

namespace afflux::rows {
namespace {

std::size_t blocks_of(std::size_t bytes, std::size_t block_bytes) {
    if (block_bytes == 0 || bytes % block_bytes != 0) {
        throw std::invalid_argument("a room has whole blocks");
    }
    return bytes / block_bytes;
}

void check(std::span<const std::int64_t> places, std::size_t row_bytes, std::size_t room_bytes) {
    const std::size_t rows = row_bytes == 0 ? 0 : room_bytes / row_bytes;
    for (const std::int64_t place : places) {
        if (place >= 0 && static_cast<std::size_t>(place) < rows) continue;
        throw std::out_of_range("row " + std::to_string(place) + " of " + std::to_string(rows));
    }
}

// Rows that divide a block lie each in one of them: `Row` is a number of their size.
template <typename Row>
void pack_numbers(const std::byte* rows, std::span<const std::int64_t> places,
                  std::size_t block_bytes, const Shuffle& shuffle, std::byte* room) {
    const std::size_t in_block = block_bytes / sizeof(Row);
    std::size_t block = 0;
    std::byte* at = room + shuffle(0) * block_bytes;
    for (std::size_t i = 0; i < places.size(); ++i) {
        const auto place = static_cast<std::size_t>(places[i]);
        // They ascend as a rule: this is seldom a division.
        if (place - block * in_block >= in_block) {
            block = place / in_block;
            at = room + shuffle(block) * block_bytes;
        }
        std::memcpy(at + (place - block * in_block) * sizeof(Row), rows + i * sizeof(Row),
                    sizeof(Row));
    }
}

void pack_shuffled(const std::byte* rows, std::span<const std::int64_t> places,
                   const Packing& packing, const Shuffle& shuffle, std::byte* room) {
    const std::size_t block_bytes = packing.block_bytes;
    for (std::size_t i = 0; i < places.size(); ++i) {
        const std::byte* from = rows + i * packing.row_bytes;
        std::size_t first = static_cast<std::size_t>(places[i]) * packing.row_bytes;
        const std::size_t end = first + packing.row_bytes;
        while (first < end) {
            const std::size_t block = first / block_bytes;
            const std::size_t within = first - block * block_bytes;
            const std::size_t bytes = std::min(end - first, block_bytes - within);
            std::memcpy(room + shuffle(block) * block_bytes + within, from, bytes);
            from += bytes;
            first += bytes;
        }
    }
}

}  // namespace

void pack(std::span<const std::byte> rows, std::span<const std::int64_t> places,
          const Packing& packing, std::span<std::byte> room) {
    const std::size_t row_bytes = packing.row_bytes;
    if (rows.size() != places.size() * row_bytes) {
        throw std::invalid_argument("as many rows as places");
    }
    check(places, row_bytes, room.size());
    if (places.empty()) return;
    if (packing.shuffled) {
        const Shuffle shuffle(blocks_of(room.size(), packing.block_bytes));
        if (row_bytes == sizeof(std::uint32_t) && packing.block_bytes % row_bytes == 0) {
            pack_numbers<std::uint32_t>(rows.data(), places, packing.block_bytes, shuffle,
                                        room.data());
        } else {
            pack_shuffled(rows.data(), places, packing, shuffle, room.data());
        }
        return;
    }
    for (std::size_t i = 0; i < places.size(); ++i) {
        std::memcpy(room.data() + static_cast<std::size_t>(places[i]) * row_bytes,
                    rows.data() + i * row_bytes, row_bytes);
    }
}

void unshuffle(std::span<const std::byte> room, std::size_t block_bytes, std::span<std::byte> out) {
    const std::size_t blocks = blocks_of(room.size(), block_bytes);
    if (out.size() > room.size()) throw std::invalid_argument("more than there is");
    const Shuffle shuffle(blocks);
    for (std::size_t block = 0; block * block_bytes < out.size(); ++block) {
        const std::size_t first = block * block_bytes;
        std::memcpy(out.data() + first, room.data() + shuffle(block) * block_bytes,
                    std::min(block_bytes, out.size() - first));
    }
}

}  // namespace afflux::rows
