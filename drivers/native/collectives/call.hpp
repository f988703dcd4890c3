// A request that has been checked, with the parts of its tensors by rank.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "collectives/reduction.hpp"
#include "collectives/request.hpp"

namespace afflux::collectives {

// A rank's call, with its constants. The tensors of all shapes of calls, a list or a single one,
// are here by rank: part r of the larger side is what rank r gives or gets.
struct Call {
    Collective what;
    std::size_t count;  // elements of a part
    std::size_t element_bytes;
    std::size_t block;           // elements of a block, if it reduces
    const Reduction* reduction;  // if it reduces
    int root;
    std::byte* tensor;       // that is changed in place, or the smaller side of the others
    const std::byte* input;  // of AllGather
    std::array<const std::byte*, arithmetic::kMaxRanks> inputs;  // of ReduceScatter
    std::array<std::byte*, arithmetic::kMaxRanks> outputs;       // of AllGather

    std::size_t bytes() const { return count * element_bytes; }
    std::size_t blocks() const { return blocks_of(count); }
    // Blocks that hold so many elements; the last one may be short.
    std::size_t blocks_of(std::size_t elements) const { return (elements + block - 1) / block; }
    std::size_t block_bytes() const { return block * element_bytes; }
};

// Checks requests for a number of ranks, and keeps the reductions that they name.
class Caller {
  public:
    explicit Caller(int ranks) : ranks_(ranks) {}

    // Makes a request the call. Throws std::invalid_argument for one that cannot be.
    void prepare(const Request& request, Call& call);

  private:
    const Reduction& reduction(Dtype dtype, Op op);

    const int ranks_;
    std::array<std::optional<Reduction>, kDtypes * kOps> reductions_;
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

// Blocks first to last - 1 of `blocks`, which rank `rank` of `ranks` reduces.
struct Share {
    std::size_t first, last;
};

constexpr Share share_of(std::size_t blocks, int rank, int ranks) {
    const auto r = static_cast<std::size_t>(rank), n = static_cast<std::size_t>(ranks);
    return {blocks * r / n, blocks * (r + 1) / n};
}

inline bool overlap(const std::byte* a, std::size_t a_bytes, const std::byte* b,
                    std::size_t b_bytes) {
    const auto first_a = reinterpret_cast<std::uintptr_t>(a);
    const auto first_b = reinterpret_cast<std::uintptr_t>(b);
    return first_a < first_b + b_bytes && first_b < first_a + a_bytes;
}

}  // namespace afflux::collectives
