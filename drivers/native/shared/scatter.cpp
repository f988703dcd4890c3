#include "shared/scatter.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace afflux::shared {
namespace {

// Whether whole blocks of all shards have room in the buffer for small tensors.
bool is_small(const Segment& segment, const Call& call) {
    const auto ranks = static_cast<std::size_t>(segment.ranks());
    const std::size_t limit = segment.control().header.small_bytes;
    return call.blocks() <= limit / (ranks * call.block_bytes());
}

std::size_t blocks_of_part(const Segment& segment, const Call& call) {
    const auto ranks = static_cast<std::size_t>(segment.ranks());
    return std::max<std::size_t>(blocks_of_batch(segment, call) / ranks, 1);
}

// The buffers have room for the least that there is, whatever their sizes are set to.
static_assert(arithmetic::kMaxRanks * kBlockBytes <= kSmallBytes);

}  // namespace

ScatterAlgorithm::ScatterAlgorithm(const Segment& segment, int rank, unsigned parity,
                                   std::uint64_t& position, const Call& call, BlockCounts& counts)
    : segment_(segment),
      rank_(rank),
      parity_(parity),
      call_(call),
      counts_(counts),
      small_(is_small(segment, call)),
      part_blocks_(small_ ? std::max<std::size_t>(call.blocks(), 1)
                          : blocks_of_part(segment, call)),
      batches_((call.blocks() + part_blocks_ - 1) / part_blocks_) {
    if (!small_) {
        first_ = position;
        position += batches_;
    }
    out_ = call.tensor;
    const std::size_t bytes = call.bytes();
    for (int r = 0; r < segment.ranks() && kept_.empty() && bytes != 0; ++r) {
        const std::byte* const input = call.inputs[static_cast<std::size_t>(r)];
        const bool own = r == rank && input == out_;
        if (!own && overlap(input, bytes, out_, bytes)) kept_.resize(bytes);
    }
    if (!kept_.empty()) out_ = kept_.data();
    ahead();
}

ScatterAlgorithm::Part ScatterAlgorithm::part(int rank, int shard, std::size_t batch) const {
    const std::size_t block = static_cast<std::size_t>(shard) * part_blocks_;
    const std::size_t byte = block * call_.block_bytes();
    Area& area = segment_.area(rank);
    if (small_) {
        Small& small = area.small[parity_];
        return {small.elements + byte, small.present + block};
    }
    Batch& ring = area.ring[(first_ + batch) % kRingBatches];
    return {ring.elements + byte, ring.present + block};
}

std::size_t ScatterAlgorithm::size(std::size_t batch) const {
    return std::min(part_blocks_ * call_.block, call_.count - first(batch));
}

void ScatterAlgorithm::copy_in(std::size_t batch) {
    const std::size_t count = size(batch);
    for (int s = 0; s < segment_.ranks(); ++s) {
        const std::byte* const from =
            call_.inputs[static_cast<std::size_t>(s)] + first(batch) * call_.element_bytes;
        const Part to = part(rank_, s, batch);
        const bool stays = s == rank_ && direct(batch);
        const std::size_t present =
            call_.reduction->take(from, count, stays ? nullptr : to.elements, to.present);
        if (call_.reduction->scanned()) counts_.add(present, call_.blocks_of(count));
    }
}

void ScatterAlgorithm::reduce(std::size_t batch) {
    const std::size_t byte = first(batch) * call_.element_bytes;
    std::array<const void*, arithmetic::kMaxRanks> elements;
    std::array<const std::uint8_t*, arithmetic::kMaxRanks> present;
    for (int r = 0; r < segment_.ranks(); ++r) {
        const auto i = static_cast<std::size_t>(r);
        const Part from = part(r, rank_, batch);
        elements[i] = from.elements;
        present[i] = from.present;
        if (r == rank_ && direct(batch)) elements[i] = call_.inputs[i] + byte;
    }
    std::array<std::uint8_t, most_blocks(kBatchBytes)> some;
    call_.reduction->reduce_all(size(batch), elements.data(), present.data(), out_ + byte,
                                some.data());
}

void ScatterAlgorithm::ahead() {
    // Batch k is read before the ranks arrive at phase k + 2, counted from 1, so that batch k + 2
    // certainly finds room in a ring of four.
    if (copied_in_ < std::min(batches_, turns_ + 2)) copy_in(copied_in_++);
}

bool ScatterAlgorithm::turn() {
    const std::size_t batch = turns_++;
    if (batch < batches_) reduce(batch);
    if (turns_ < batches_) return false;
    if (!kept_.empty()) std::memcpy(call_.tensor, kept_.data(), kept_.size());
    return true;
}

}  // namespace afflux::shared
