#include "shared/staged.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "codec/scan.hpp"
#include "shared/presence.hpp"

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
    // Zeros of either sign become +0 where the result is absent, best while they are in the cache.
    // But no tensor is changed before the ranks have compared their calls, so that the first two
    // batches are cleared at the end.
    const bool clear = call_.arithmetic->cleared() && batch >= 2;
    const Share mine = share_of(whole.blocks, rank_, segment_.ranks());
    if (whole.whole) {
        take(whole, {0, mine.first}, own, true, clear);
        take(whole, mine, own, false, clear);
        take(whole, {mine.last, whole.blocks}, own, true, clear);
    } else {
        // The padding of the last block is in the ring only.
        take(whole, {0, whole.blocks}, own, true, clear);
    }
    if (call_.arithmetic->scanned()) {
        const auto absent = std::count(own.exponents, own.exponents + whole.blocks, 0);
        counts_.add(whole.blocks - static_cast<std::size_t>(absent), whole.blocks);
    }
    ++copied_in_;
}

void StagedAlgorithm::take(const Extent& extent, Share range, Batch& own, bool copy, bool clear) {
    const std::size_t bytes = call_.element_bytes;
    const std::size_t begin = range.first * call_.block;
    const std::size_t end = std::min(range.last * call_.block, extent.count);
    if (begin >= end) return;
    const std::size_t count = end - begin;
    std::byte* const from = extent.data + begin * bytes;
    std::byte* const to = own.elements + begin * bytes;
    std::uint8_t* const exponents = own.exponents + range.first;
    if (clear)
        codec::scan_clear(call_.arithmetic->numbers()->dtype, from, count, copy ? to : nullptr,
                          exponents);
    else
        call_.arithmetic->take(from, count, copy ? to : nullptr, exponents);
}

void StagedAlgorithm::reduce(std::size_t batch) {
    const int ranks = segment_.ranks();
    const Extent whole = extent(batch);
    const Share mine = share_of(whole.blocks, rank_, ranks);
    if (mine.first == mine.last) return;
    const std::size_t begin = mine.first * call_.block_bytes();
    std::array<const void*, codec::kMaxRanks> elements;
    std::array<const std::uint8_t*, codec::kMaxRanks> exponents;
    for (int r = 0; r < ranks; ++r) {
        const Batch& input = ring(r, batch);
        const bool direct = r == rank_ && whole.whole;
        elements[static_cast<std::size_t>(r)] = (direct ? whole.data : input.elements) + begin;
        exponents[static_cast<std::size_t>(r)] = input.exponents + mine.first;
    }
    Batch& own = ring(rank_, batch);
    call_.arithmetic->reduce(mine.last - mine.first, elements.data(), exponents.data(),
                             own.elements + begin, own.present + mine.first,
                             whole.whole ? whole.data + begin : nullptr);
}

void StagedAlgorithm::copy_out(std::size_t batch) {
    const int ranks = segment_.ranks();
    const Extent whole = extent(batch);
    const std::size_t block_bytes = call_.block_bytes();
    for (int r = 0; r < ranks; ++r) {
        const Share share = share_of(whole.blocks, r, ranks);
        const Batch& result = ring(r, batch);
        const bool there = r == rank_ && whole.whole;
        for_runs(result.present + share.first, share.last - share.first,
                 [&](std::size_t a, std::size_t b, bool is_present) {
                     const std::size_t first = share.first + a;
                     const std::size_t end = std::min((share.first + b) * call_.block, whole.count);
                     const std::size_t count = end - first * call_.block;
                     std::byte* const to = whole.data + first * block_bytes;
                     if (is_present && !there)
                         std::memcpy(to, result.elements + first * block_bytes,
                                     count * call_.element_bytes);
                     if (!is_present && call_.arithmetic->cleared() && batch < 2)
                         codec::clear(call_.arithmetic->numbers()->dtype, to, count);
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
