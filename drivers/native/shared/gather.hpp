// The algorithm of broadcast and all-gather. Each source, the root or every rank, copies its part
// into its area, and all ranks copy it out from there:
//
//     phase     1      2      3      4
//     copy in   0   │  1   │  2   │  3   │         each source its own batch
//     copy out      │  0   │  1   │  2   │  3      each rank those of the sources
//
// A small part is a single batch, in the buffer for small tensors; a larger one goes through the
// ring.
#pragma once

#include <vector>

#include "shared/algorithm.hpp"

namespace afflux::shared {

class GatherAlgorithm final : public Algorithm {
  public:
    // Copies the first batch in. `parity` and `position` are those of the small and of the staged
    // algorithm.
    GatherAlgorithm(const Segment& segment, int rank, unsigned parity, std::uint64_t& position,
                    const Call& call);
    void ahead() override;
    bool turn() override;

  private:
    std::byte* buffer(int rank, std::size_t batch) const;
    std::byte* output(int source) const;
    // Bytes of the part at which a batch begins, and how many there are.
    std::size_t first(std::size_t batch) const { return batch * batch_bytes_; }
    std::size_t size(std::size_t batch) const;
    void copy_in(std::size_t batch);
    void copy_out(int source, std::size_t batch);

    const Segment& segment_;
    const int rank_;
    const unsigned parity_;
    const Call& call_;
    const bool small_;
    const std::size_t batch_bytes_;
    const std::size_t batches_;
    std::uint64_t first_ = 0;  // batch's position in the ring
    const std::byte* own_ = nullptr;
    std::vector<std::byte> kept_;  // the own part, if it lies where another one goes to
    std::size_t copied_in_ = 0;    // batches
    std::size_t turns_ = 0;        // phases that are over
};

}  // namespace afflux::shared
