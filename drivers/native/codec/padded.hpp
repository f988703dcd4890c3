// A tensor's last block, with zeros where there are no elements.
#pragma once

#include <cstring>

#include "codec/types.hpp"

namespace afflux::codec {

struct Padded {
    Padded() = default;

    // Copies `count` elements, less than a block.
    Padded(Dtype dtype, const void* elements, std::size_t count) {
        std::memcpy(block, elements, size_of(dtype) * count);
    }

    alignas(64) unsigned char block[4 * kBlock] = {};
};

}  // namespace afflux::codec
