// A result in a second place, where the other ranks of the host read it: only what is not zero.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "contract/wire.hpp"

namespace afflux::worker {

// Where else the blocks of a result go that any rank has sent.
struct Mirror {
    void* elements = nullptr;       // as many as the result has; null: nowhere
    std::uint8_t* marks = nullptr;  // of each block; becomes 1 when the block is there
};

// Copies the marked blocks out of a mirror, of so many elements of so many bytes each.
inline void copy_marked(const Mirror& mirror, std::size_t count, std::size_t size, void* out) {
    const std::size_t block = wire::kBlockElements * size, bytes = count * size;
    const auto* const from = static_cast<const std::uint8_t*>(mirror.elements);
    auto* const to = static_cast<std::uint8_t*>(out);
    for (std::size_t at = 0; at < bytes;) {
        std::size_t end = at;
        for (; end < bytes && mirror.marks[end / block] != 0; end += block) {
        }
        if (end > at) std::memcpy(to + at, from + at, std::min(end, bytes) - at);
        at = end + block;
    }
}

}  // namespace afflux::worker
