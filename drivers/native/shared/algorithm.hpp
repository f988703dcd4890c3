// How an operation advances from phase to phase.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "codec/numbers.hpp"
#include "shared/segment.hpp"

namespace afflux::shared {

// A rank's call, with its constants.
struct Call {
    std::byte* data;  // the tensor, which becomes the result
    std::size_t count;
    const codec::Numbers* numbers;

    std::size_t element_bytes() const { return codec::size_of(numbers->dtype); }
    std::size_t blocks() const { return codec::blocks_of(count); }
    bool is_sum() const { return codec::is_sum(numbers->op); }
};

// Presence of a rank's own blocks, as far as they were scanned.
struct BlockCounts {
    std::uint64_t present = 0;
    std::uint64_t total = 0;
};

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

// Blocks first to last - 1 of `blocks`, which rank `rank` of `ranks` reduces.
struct Share {
    std::size_t first, last;
};

constexpr Share share_of(std::size_t blocks, int rank, int ranks) {
    const auto r = static_cast<std::size_t>(rank), n = static_cast<std::size_t>(ranks);
    return {blocks * r / n, blocks * (r + 1) / n};
}

}  // namespace afflux::shared
