// Blocks of a piece that are present.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "collectives/presence.hpp"
#include "streams/message.hpp"

namespace afflux::streams {

inline std::size_t blocks_in(std::size_t bytes) {
    return (bytes + kBlockBytes - 1) / kBlockBytes;
}

// Calls visit(at, bytes) for runs of blocks that are present.
template <typename Visit>
void for_present(const std::uint8_t* present, std::size_t bytes, const Visit& visit) {
    for_runs(present, blocks_in(bytes), [&](std::size_t first, std::size_t last, bool there) {
        if (there)
            visit(first * kBlockBytes, std::min(last * kBlockBytes, bytes) - first * kBlockBytes);
    });
}

// Makes blocks that are absent zeros.
inline void clear_absent(const std::uint8_t* present, std::size_t bytes, std::byte* elements) {
    for_runs(present, blocks_in(bytes), [&](std::size_t first, std::size_t last, bool there) {
        const std::size_t begin = first * kBlockBytes;
        if (!there) std::memset(elements + begin, 0, std::min(last * kBlockBytes, bytes) - begin);
    });
}

}  // namespace afflux::streams
