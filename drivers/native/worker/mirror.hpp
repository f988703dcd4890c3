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
    std::uint8_t* marks = nullptr;  // of each block; becomes 1 when it is there
};

// Puts the bytes of a block into the mirror.
inline void put_in(const Mirror& mirror, std::size_t block, std::size_t bytes,
                   const void* elements) {
    if (mirror.elements == nullptr) return;
    std::memcpy(static_cast<std::uint8_t*>(mirror.elements) + block * wire::kBlockBytes, elements,
                bytes);
    mirror.marks[block] = 1;
}

// Copies the marked blocks, of so many bytes in all, from one tensor to another. A mark that is not
// 0 is of a block that is there.
inline void copy_marked(const void* elements, const std::uint8_t* marks, std::size_t bytes,
                        void* out) {
    const auto* const from = static_cast<const std::uint8_t*>(elements);
    auto* const to = static_cast<std::uint8_t*>(out);
    for (std::size_t at = 0; at < bytes;) {
        std::size_t end = at;
        for (; end < bytes && marks[end / wire::kBlockBytes] != 0; end += wire::kBlockBytes) {
        }
        if (end > at) std::memcpy(to + at, from + at, std::min(end, bytes) - at);
        at = end + wire::kBlockBytes;
    }
}

}  // namespace afflux::worker
