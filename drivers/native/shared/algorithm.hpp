// How an operation advances from phase to phase.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "collectives/call.hpp"
#include "shared/segment.hpp"

namespace afflux::shared {

// One operation on its way through shared memory. Its work alternates with the group's phases:
// `turn` is called when a phase is over, `ahead` when this rank has arrived at the next one and the
// others possibly have not.
class Algorithm {
  public:
    virtual ~Algorithm() = default;
    // Does work that does not depend on the phase at which this rank has arrived.
    virtual void ahead() {}
    // Does work that depends on it. Returns whether the operation is over; if not, the rank arrives
    // at the next phase.
    virtual bool turn() = 0;
};

// Blocks in a batch of the ring, at least one. Batches of large tensors are longer, for fewer
// phases.
inline std::size_t blocks_of_batch(const Segment& segment, const Call& call) {
    const SegmentHeader& header = segment.control().header;
    const std::size_t longest = std::max(header.batch_bytes, header.copied_bytes / 2);
    const std::size_t bytes =
        std::clamp<std::size_t>(call.bytes() / 16, header.batch_bytes, longest);
    return std::clamp<std::size_t>(bytes / call.block_bytes(), 1, most_blocks(kBatchBytes));
}

}  // namespace afflux::shared
