// The algorithm of reduce-scatter. Each rank copies all shards but its own into its area, and
// reduces its own from all areas:
//
//     phase     1      2      3      4
//     copy in   0   │  1   │  2   │  3   │         each rank its own batch
//     reduce        │  0   │  1   │  2   │  3      each rank its shard
//
// A batch has the same part of every shard, in whole blocks. A small tensor is a single batch, in
// the buffer for small tensors; a larger one goes through the ring.
#pragma once

#include <vector>

#include "shared/algorithm.hpp"

namespace afflux::shared {

class ScatterAlgorithm final : public Algorithm {
  public:
    // Copies the first batch in. `parity` and `position` are those of the small and of the staged
    // algorithm.
    ScatterAlgorithm(const Segment& segment, int rank, unsigned parity, std::uint64_t& position,
                     const Call& call, BlockCounts& counts);
    void ahead() override;
    bool turn() override;

  private:
    // A part of a rank's area: as many blocks of every shard.
    struct Part {
        std::byte* elements;
        std::uint8_t* present;
    };
    Part part(int rank, int shard, std::size_t batch) const;
    // Elements of the shard at which a batch begins, and how many there are.
    std::size_t first(std::size_t batch) const { return batch * part_blocks_ * call_.block; }
    std::size_t size(std::size_t batch) const;
    // Whether the own shard is read where it is, as it has no block to pad.
    bool direct(std::size_t batch) const { return size(batch) % call_.block == 0; }
    void copy_in(std::size_t batch);
    void reduce(std::size_t batch);

    const Segment& segment_;
    const int rank_;
    const unsigned parity_;
    const Call& call_;
    BlockCounts& counts_;
    const bool small_;
    const std::size_t part_blocks_;
    const std::size_t batches_;
    std::uint64_t first_ = 0;  // batch's position in the ring
    std::byte* out_ = nullptr;
    std::vector<std::byte> kept_;  // the result, if it goes to where another shard still is
    std::size_t copied_in_ = 0;    // batches
    std::size_t turns_ = 0;        // phases that are over
};

}  // namespace afflux::shared
