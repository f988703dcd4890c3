// Reachable tensors: each rank reduces its share of the blocks straight from all ranks' tensors,
// and writes the result into all of them. Everything is read once and written once.
#pragma once

#include "shared/operation.hpp"

namespace afflux::shared {

class OnePassOperation final : public Operation {
  public:
    // `allocation` holds the tensors of all ranks, at the same place in each slice.
    OnePassOperation(const Segment& segment, int rank, std::shared_ptr<Allocation> allocation,
                     const Call& call);
    bool turn() override;

  private:
    const Segment& segment_;
    const int rank_;
    const std::shared_ptr<Allocation> allocation_;
    const Call call_;
    bool reduced_ = false;
};

}  // namespace afflux::shared
