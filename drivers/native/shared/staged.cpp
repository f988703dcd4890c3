#include "shared/staged.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "codec/scan.hpp"

namespace afflux::shared {
namespace {

// Calls visit(first, last, present) for runs of blocks that are all present or all absent.
template <typename Visit>
void for_runs(const std::uint8_t* flags, std::size_t blocks, const Visit& visit) {
    for (std::size_t first = 0; first < blocks;) {
        const bool present = flags[first] != 0;
        std::size_t last = first + 1;
        while (last < blocks && (flags[last] != 0) == present) ++last;
        visit(first, last, present);
        first = last;
    }
}

}  // namespace

StagedAlgorithm::StagedAlgorithm(const Segment& segment, int rank, std::uint64_t& position,
                                 const Call& call, BlockCounts& counts)
    : segment_(segment),
      rank_(rank),
      first_(position),
      call_(call),
      counts_(counts),
      batch_blocks_(blocks_of_batch(segment, call.element_bytes)),
      batches_((call.blocks() + batch_blocks_ - 1) / batch_blocks_) {
    position += batches_;
}

StagedAlgorithm::Extent StagedAlgorithm::extent(std::size_t batch) const {
    const std::size_t first = batch * batch_blocks_;
    const std::size_t blocks = std::min(batch_blocks_, call_.blocks() - first);
    return {call_.tensor + first * codec::kBlock * call_.element_bytes, blocks,
            std::min(blocks * codec::kBlock, call_.count - first * codec::kBlock)};
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
    const bool clear = call_.arithmetic->scanned() && batch >= 2;
    const Share mine = share_of(whole.blocks, rank_, segment_.ranks());
    if (whole.whole()) {
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
    const std::size_t begin = range.first * codec::kBlock;
    const std::size_t end = std::min(range.last * codec::kBlock, extent.count);
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
    const std::size_t begin = mine.first * codec::kBlock * call_.element_bytes;
    std::array<const void*, codec::kMaxRanks> elements;
    std::array<const std::uint8_t*, codec::kMaxRanks> exponents;
    for (int r = 0; r < ranks; ++r) {
        const Batch& input = ring(r, batch);
        const bool direct = r == rank_ && whole.whole();
        elements[static_cast<std::size_t>(r)] = (direct ? whole.data : input.elements) + begin;
        exponents[static_cast<std::size_t>(r)] = input.exponents + mine.first;
    }
    Batch& own = ring(rank_, batch);
    call_.arithmetic->reduce(mine.last - mine.first, elements.data(), exponents.data(),
                             own.elements + begin, own.present + mine.first);
}

void StagedAlgorithm::copy_out(std::size_t batch) {
    const int ranks = segment_.ranks();
    const Extent whole = extent(batch);
    const std::size_t block_bytes = codec::kBlock * call_.element_bytes;
    for (int r = 0; r < ranks; ++r) {
        const Share share = share_of(whole.blocks, r, ranks);
        const Batch& result = ring(r, batch);
        for_runs(result.present + share.first, share.last - share.first,
                 [&](std::size_t a, std::size_t b, bool is_present) {
                     const std::size_t first = share.first + a;
                     const std::size_t end =
                         std::min((share.first + b) * codec::kBlock, whole.count);
                     const std::size_t count = end - first * codec::kBlock;
                     std::byte* const to = whole.data + first * block_bytes;
                     if (is_present)
                         std::memcpy(to, result.elements + first * block_bytes,
                                     count * call_.element_bytes);
                     else if (batch < 2)
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
