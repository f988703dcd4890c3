// Operations of one round trip: the opening round carries the whole tensor (protocol, section 8.4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/blocks.hpp"

namespace afflux::worker {

// Whether a tensor is reduced in one round trip, in a job of so many lanes. In exact mode the
// tensor in question is the one on the wire.
bool is_direct(const Tensor& tensor, std::size_t lanes);

class Direct {
  public:
    explicit Direct(const Tensor& tensor);

    // The lanes that carry the tensor, from lane 1 on.
    wire::Present present() const;

    // Writes the blocks of these lanes.
    void put(std::int32_t* blocks) const;

    // Takes the sums, or extremes, of as many blocks.
    void take(const std::int32_t* blocks);

  private:
    Tensor tensor_;
    std::vector<std::int32_t> words_;  // of whole blocks
};

}  // namespace afflux::worker
