#include "shared/small_tensor.hpp"

#include <array>

namespace afflux::shared {

SmallAlgorithm::SmallAlgorithm(const Segment& segment, int rank, unsigned parity, const Call& call,
                               BlockCounts& counts)
    : segment_(segment), parity_(parity), call_(call) {
    if (call.count == 0) return;
    Small& own = segment.area(rank).small[parity_];
    const std::size_t present =
        call.reduction->take(call.tensor, call.count, own.elements, own.present);
    if (call.reduction->scanned()) counts.add(present, call.blocks());
}

bool SmallAlgorithm::turn() {
    if (call_.count == 0) return true;
    std::array<const void*, arithmetic::kMaxRanks> elements;
    std::array<const std::uint8_t*, arithmetic::kMaxRanks> present;
    for (int r = 0; r < segment_.ranks(); ++r) {
        const Small& small = segment_.area(r).small[parity_];
        elements[static_cast<std::size_t>(r)] = small.elements;
        present[static_cast<std::size_t>(r)] = small.present;
    }
    std::array<std::uint8_t, most_blocks(kSmallBytes)> some;
    call_.reduction->reduce_all(call_.count, elements.data(), present.data(), call_.tensor,
                                some.data());
    return true;
}

}  // namespace afflux::shared
