// The algorithm for all-reduces of ordinary tensors of any size. They go batch by batch through a
// ring in each rank's area.
//
//     phase     1      2      3      4      5      6
//     copy in   0   │  1   │  2   │  3   │      │         each rank its own batch
//     reduce        │  0   │  1   │  2   │  3   │         each rank its share of the blocks
//     copy out      │      │  0   │  1   │  2   │  3      each rank all others' shares
//
// A rank copies batch k + 1 in before it checks that the others have copied theirs of k, so that
// ranks that run unevenly wait less. It need not copy its own share, which it reads where it is,
// and whose result it also writes there.
#pragma once

#include "shared/algorithm.hpp"

namespace afflux::shared {

class StagedAlgorithm final : public Algorithm {
  public:
    // `position` counts the batches of this group, for the position in the ring; this operation's
    // are added to it.
    StagedAlgorithm(const Segment& segment, int rank, std::uint64_t& position, const Call& call,
                    BlockCounts& counts);
    // Copies the first batch in. To be called before the operation's own first phase.
    void start() { copy_in(0); }
    void ahead() override;
    bool turn() override;

  private:
    // Blocks and elements of a batch, and where they begin in the tensor.
    struct Extent {
        std::byte* data;
        std::size_t blocks;
        std::size_t count;
        bool whole;  // no block is short
    };
    Extent extent(std::size_t batch) const;
    Batch& ring(int rank, std::size_t batch) const;
    void copy_in(std::size_t batch);
    void take(const Extent& extent, Share range, Batch& own, bool copy);
    void reduce(std::size_t batch);
    void copy_out(std::size_t batch);

    const Segment& segment_;
    const int rank_;
    const std::uint64_t first_;
    const Call& call_;
    BlockCounts& counts_;
    const std::size_t batch_blocks_;
    const std::size_t batches_;
    std::size_t copied_in_ = 0;  // batches
    std::size_t turns_ = 0;      // phases that are over
};

}  // namespace afflux::shared
