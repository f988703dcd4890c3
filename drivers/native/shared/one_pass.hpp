// The algorithm for reachable tensors. Each rank reduces its share of the blocks directly from all
// ranks' tensors, and writes the result into all of them. Everything is read once and written once.
#pragma once

#include "shared/algorithm.hpp"

namespace afflux::shared {

class OnePassAlgorithm final : public Algorithm {
  public:
    // `allocation` holds the tensors of all ranks, at the same offset in each slice.
    OnePassAlgorithm(const Segment& segment, int rank, std::shared_ptr<Allocation> allocation,
                     const Call& call);
    bool turn() override;

  private:
    const Segment& segment_;
    const int rank_;
    const std::shared_ptr<Allocation> allocation_;
    const Call& call_;
    bool reduced_ = false;
};

}  // namespace afflux::shared
