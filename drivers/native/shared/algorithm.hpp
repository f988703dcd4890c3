// How an operation advances from phase to phase.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "shared/arithmetic.hpp"
#include "shared/segment.hpp"

namespace afflux::shared {

// A rank's call, with its constants. The tensors of all shapes of calls, a list or a single one,
// are here by rank: part r of the larger side is what rank r gives or gets.
struct Call {
    Collective what;
    std::size_t count;  // elements of a part
    std::size_t element_bytes;
    std::size_t block;             // elements of a block, if it reduces
    const Arithmetic* arithmetic;  // if it reduces
    int root;
    std::byte* tensor;       // that is changed in place, or the smaller side of the others
    const std::byte* input;  // of AllGather
    std::array<const std::byte*, codec::kMaxRanks> inputs;  // of ReduceScatter
    std::array<std::byte*, codec::kMaxRanks> outputs;       // of AllGather

    std::size_t bytes() const { return count * element_bytes; }
    std::size_t blocks() const { return blocks_of(count); }
    // Blocks that hold so many elements; the last one may be short.
    std::size_t blocks_of(std::size_t elements) const { return (elements + block - 1) / block; }
    std::size_t block_bytes() const { return block * element_bytes; }
};

// Presence of a rank's own blocks, as far as they were scanned.
struct BlockCounts {
    std::uint64_t present = 0;
    std::uint64_t total = 0;

    void add(std::size_t more_present, std::size_t more) {
        present += more_present;
        total += more;
    }
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

// Blocks in a batch of the ring: as many as have room with their exponents, but at least one.
inline std::size_t blocks_of_batch(const Segment& segment, const Call& call) {
    const std::size_t room = segment.control().header.batch_bytes / call.block_bytes();
    return std::clamp<std::size_t>(room, 1, most_blocks(kBatchBytes));
}

inline bool overlap(const std::byte* a, std::size_t a_bytes, const std::byte* b,
                    std::size_t b_bytes) {
    const auto first_a = reinterpret_cast<std::uintptr_t>(a);
    const auto first_b = reinterpret_cast<std::uintptr_t>(b);
    return first_a < first_b + b_bytes && first_b < first_a + a_bytes;
}

}  // namespace afflux::shared
