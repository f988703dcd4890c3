// Small tensors: each rank copies its own to its area, and after one phase reduces all of them
// itself. One synchronisation; N times the arithmetic, which is little.
#pragma once

#include "shared/algorithm.hpp"

namespace afflux::shared {

class SmallAlgorithm final : public Algorithm {
  public:
    // Copies the input. `parity` is that of the operation's number: what the other ranks may still
    // be reading is the last operation's, in the other buffer.
    SmallAlgorithm(const Segment& segment, int rank, unsigned parity, const Call& call,
                   BlockCounts& counts);
    bool turn() override;

  private:
    const Segment& segment_;
    const unsigned parity_;
    const Call call_;
};

}  // namespace afflux::shared
