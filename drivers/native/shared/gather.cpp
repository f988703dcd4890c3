#include "shared/gather.hpp"

#include <algorithm>
#include <cstring>

namespace afflux::shared {
namespace {

// Enough batches that copying in and copying out overlap, but no more phases than that takes.
std::size_t bytes_of_batch(const SegmentHeader& header, std::size_t bytes) {
    const std::size_t eighth = (bytes / 8 + kPage - 1) / kPage * kPage;
    return std::clamp<std::size_t>(eighth, header.batch_bytes, header.copied_bytes);
}

}  // namespace

GatherAlgorithm::GatherAlgorithm(const Segment& segment, int rank, unsigned parity,
                                 std::uint64_t& position, const Call& call)
    : segment_(segment),
      rank_(rank),
      parity_(parity),
      call_(call),
      small_(call.bytes() <= segment.control().header.small_bytes),
      batch_bytes_(small_ ? kSmallBytes : bytes_of_batch(segment.control().header, call.bytes())),
      batches_((call.bytes() + batch_bytes_ - 1) / batch_bytes_) {
    if (!small_) {
        first_ = position;
        position += batches_;
    }
    if (call.what == Collective::AllGather) {
        own_ = call.input;
        const std::size_t bytes = call.bytes();
        for (int r = 0; r < segment.ranks() && kept_.empty(); ++r)
            if (output(r) != own_ && overlap(output(r), bytes, own_, bytes))
                kept_.assign(own_, own_ + bytes);
        if (!kept_.empty()) own_ = kept_.data();
    } else if (call.root == rank) {
        own_ = call.tensor;
    }
    ahead();
}

std::byte* GatherAlgorithm::buffer(int rank, std::size_t batch) const {
    Area& area = segment_.area(rank);
    return small_ ? area.small[parity_].elements
                  : area.ring[(first_ + batch) % kRingBatches].elements;
}

std::byte* GatherAlgorithm::output(int source) const {
    return call_.what == Collective::AllGather ? call_.outputs[static_cast<std::size_t>(source)]
                                               : call_.tensor;
}

std::size_t GatherAlgorithm::size(std::size_t batch) const {
    return std::min(batch_bytes_, call_.bytes() - first(batch));
}

void GatherAlgorithm::copy_in(std::size_t batch) {
    if (own_) std::memcpy(buffer(rank_, batch), own_ + first(batch), size(batch));
}

void GatherAlgorithm::copy_out(int source, std::size_t batch) {
    std::byte* const to = output(source) + first(batch);
    if (source != rank_)
        std::memcpy(to, buffer(source, batch), size(batch));
    else if (to != own_ + first(batch))
        std::memcpy(to, own_ + first(batch), size(batch));
}

void GatherAlgorithm::ahead() {
    // Batch k is read before the ranks arrive at phase k + 2, counted from 1, so that batch k + 2
    // certainly finds room in a ring of four.
    if (copied_in_ < std::min(batches_, turns_ + 2)) copy_in(copied_in_++);
}

bool GatherAlgorithm::turn() {
    const std::size_t batch = turns_++;
    if (batch >= batches_) return true;
    if (call_.what == Collective::Broadcast) {
        copy_out(call_.root, batch);
    } else {
        // Each begins with another source, so that they do not all read the same memory at once.
        for (int i = 0; i < segment_.ranks(); ++i) copy_out((rank_ + i) % segment_.ranks(), batch);
    }
    return turns_ == batches_;
}

}  // namespace afflux::shared
