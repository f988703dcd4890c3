// The algorithm for all-reduces of small tensors. Each rank copies its own into its area and, after
// one phase, reduces all of them itself: one synchronisation, and N times an arithmetic that is
// short.
#pragma once

#include "shared/algorithm.hpp"

namespace afflux::shared {

class SmallAlgorithm final : public Algorithm {
  public:
    // Copies the input. `parity` is that of the operation's number: the other ranks may still be
    // reading the last operation's input, which is in the other buffer.
    SmallAlgorithm(const Segment& segment, int rank, unsigned parity, const Call& call,
                   BlockCounts& counts);
    bool turn() override;

  private:
    const Segment& segment_;
    const unsigned parity_;
    const Call& call_;
};

}  // namespace afflux::shared
