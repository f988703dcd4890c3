#include "shared/staged.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "collectives/presence.hpp"

namespace afflux::shared {

StagedAlgorithm::StagedAlgorithm(const Segment& segment, int rank, std::uint64_t& position,
                                 const Call& call, BlockCounts& counts)
    : segment_(segment),
      rank_(rank),
      first_(position),
      call_(call),
      counts_(counts),
      batch_blocks_(blocks_of_batch(segment, call)),
      batches_((call.blocks() + batch_blocks_ - 1) / batch_blocks_) {
    position += batches_;
}

StagedAlgorithm::Extent StagedAlgorithm::extent(std::size_t batch) const {
    const std::size_t first = batch * batch_blocks_;
    const std::size_t blocks = std::min(batch_blocks_, call_.blocks() - first);
    const std::size_t count = std::min(blocks * call_.block, call_.count - first * call_.block);
    return {call_.tensor + first * call_.block_bytes(), blocks, count,
            count == blocks * call_.block};
}

Batch& StagedAlgorithm::ring(int rank, std::size_t batch) const {
    return segment_.area(rank).ring[(first_ + batch) % kRingBatches];
}

void StagedAlgorithm::copy_in(std::size_t batch) {
    const Extent whole = extent(batch);
    Batch& own = ring(rank_, batch);
    const Share mine = share_of(whole.blocks, rank_, segment_.ranks());
    if (whole.whole) {
        take(whole, {0, mine.first}, own, true);
        take(whole, mine, own, false);
        take(whole, {mine.last, whole.blocks}, own, true);
    } else {
        // The padding of the last block is in the ring only.
        take(whole, {0, whole.blocks}, own, true);
    }
    if (call_.reduction->scanned()) {
        const auto absent = std::count(own.present, own.present + whole.blocks, 0);
        counts_.add(whole.blocks - static_cast<std::size_t>(absent), whole.blocks);
    }
    ++copied_in_;
}

void StagedAlgorithm::take(const Extent& extent, Share range, Batch& own, bool copy) {
    const std::size_t bytes = call_.element_bytes;
    const std::size_t begin = range.first * call_.block;
    const std::size_t end = std::min(range.last * call_.block, extent.count);
    if (begin >= end) return;
    call_.reduction->take(extent.data + begin * bytes, end - begin,
                          copy ? own.elements + begin * bytes : nullptr, own.present + range.first);
}

void StagedAlgorithm::reduce(std::size_t batch) {
    const int ranks = segment_.ranks();
    const Extent whole = extent(batch);
    const Share mine = share_of(whole.blocks, rank_, ranks);
    if (mine.first == mine.last) return;
    const std::size_t begin = mine.first * call_.block_bytes();
    std::array<const void*, arithmetic::kMaxRanks> elements;
    std::array<const std::uint8_t*, arithmetic::kMaxRanks> present;
    for (int r = 0; r < ranks; ++r) {
        const Batch& input = ring(r, batch);
        const bool direct = r == rank_ && whole.whole;
        elements[static_cast<std::size_t>(r)] = (direct ? whole.data : input.elements) + begin;
        present[static_cast<std::size_t>(r)] = input.present + mine.first;
    }
    Batch& own = ring(rank_, batch);
    call_.reduction->reduce(mine.last - mine.first, elements.data(), present.data(),
                            own.elements + begin, own.result_present + mine.first,
                            whole.whole ? whole.data + begin : nullptr);
}

void StagedAlgorithm::copy_out(std::size_t batch) {
    const int ranks = segment_.ranks();
    const Extent whole = extent(batch);
    const std::size_t block_bytes = call_.block_bytes();
    for (int r = 0; r < ranks; ++r) {
        if (r == rank_ && whole.whole) continue;  // it is there
        const Share share = share_of(whole.blocks, r, ranks);
        const Batch& result = ring(r, batch);
        for_runs(result.result_present + share.first, share.last - share.first,
                 [&](std::size_t a, std::size_t b, bool is_present) {
                     if (!is_present) return;
                     const std::size_t first = share.first + a;
                     const std::size_t end = std::min((share.first + b) * call_.block, whole.count);
                     std::memcpy(whole.data + first * block_bytes,
                                 result.elements + first * block_bytes,
                                 (end - first * call_.block) * call_.element_bytes);
                 });
    }
}

void StagedAlgorithm::ahead() {
    // Batch k + 2 replaces k - 2, which all ranks have copied out when phase k is over.
    if (copied_in_ < std::min(batches_, turns_ + 2)) copy_in(copied_in_);
}

bool StagedAlgorithm::turn() {
    const std::size_t over = turns_++;
    // All ranks have copied batch `over` in and reduced the one before it.
    if (over < batches_) reduce(over);
    if (over > 0) copy_out(over - 1);
    return over == batches_;
}

}  // namespace afflux::shared
