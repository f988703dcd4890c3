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
    std::uint8_t* marks = nullptr;  // of each 64 elements; becomes 1 when these are there
};

// Puts so many elements of so many bytes each, of which `first` is the start of a block, into the
// mirror.
inline void put_in(const Mirror& mirror, std::size_t size, std::size_t first, std::size_t count,
                   const void* elements) {
    if (mirror.elements == nullptr) return;
    std::memcpy(static_cast<std::uint8_t*>(mirror.elements) + first * size, elements, count * size);
    const std::size_t end = first + count;
    const std::size_t block = first / wire::kBlockElements;
    std::memset(mirror.marks + block, 1,
                (end + wire::kBlockElements - 1) / wire::kBlockElements - block);
}

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
