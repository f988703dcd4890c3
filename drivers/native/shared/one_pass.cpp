#include "shared/one_pass.hpp"

#include <algorithm>
#include <array>

namespace afflux::shared {

OnePassAlgorithm::OnePassAlgorithm(const Segment& segment, int rank,
                                   std::shared_ptr<Allocation> allocation, const Call& call)
    : segment_(segment), rank_(rank), allocation_(std::move(allocation)), call_(call) {}

bool OnePassAlgorithm::turn() {
    // Two phases: after the opening one all inputs are there, after the other all shares.
    if (reduced_) return true;
    const Share share = share_of(call_.blocks(), rank_, segment_.ranks());
    const std::size_t first = share.first * call_.block;
    const std::size_t last = std::min(share.last * call_.block, call_.count);
    if (first < last) {
        const auto offset = static_cast<std::size_t>(call_.tensor - allocation_->slice(rank_));
        std::array<void*, arithmetic::kMaxRanks> elements;
        for (int r = 0; r < segment_.ranks(); ++r)
            elements[static_cast<std::size_t>(r)] =
                allocation_->slice(r) + offset + first * call_.element_bytes;
        call_.reduction->reduce_in_place(last - first, elements.data());
    }
    reduced_ = true;
    return false;
}

}  // namespace afflux::shared
