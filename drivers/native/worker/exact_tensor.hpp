// Exact mode: a small tensor of floats travels as a tensor of integers (protocol, section 8.4).
#pragma once

#include <cstdint>
#include <vector>

#include "worker/blocks.hpp"

namespace afflux::worker {

// Whether the tensor is reduced in exact mode. The number of lanes does not matter: jobs that
// differ in nothing else must give the same bits.
bool is_exact(const Tensor& tensor);

class ExactTensor {
  public:
    explicit ExactTensor(const Tensor& tensor);
    ExactTensor(const ExactTensor&) = delete;

    // The integers that are summed in place of the elements. They live as long as this object.
    Tensor on_wire();

    // Writes the tensor's result, once all sums of the integers are there.
    void finish() const;

  private:
    Tensor tensor_;
    std::vector<std::int32_t> words_;
    std::vector<std::int32_t> sums_;
};

}  // namespace afflux::worker
