// Sums of integers in one round trip: the opening round carries the whole tensor (protocol,
// section 8.5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/blocks.hpp"

namespace afflux::worker {

// Whether a tensor is reduced so, in a job of so many lanes.
bool is_direct(const Tensor& tensor, std::size_t lanes);

class Direct {
  public:
    explicit Direct(const Tensor& tensor);

    // The lanes that carry the tensor, from lane 1 on.
    wire::Present present() const;

    // Writes the blocks of these lanes.
    void put(std::int32_t* blocks) const;

    // Takes the sums of as many blocks.
    void take(const std::int32_t* blocks) const;

  private:
    Tensor tensor_;
    std::vector<std::int32_t> words_;  // of whole blocks
};

}  // namespace afflux::worker
