#include "shared/small_tensor.hpp"

#include <array>
#include <cstring>

namespace afflux::shared {

SmallAlgorithm::SmallAlgorithm(const Segment& segment, int rank, unsigned parity, const Call& call,
                               BlockCounts& counts)
    : segment_(segment), parity_(parity), call_(call) {
    if (call.count == 0) return;
    Small& own = segment.area(rank).small[parity_];
    if (call.arithmetic->is_exact(call.count)) {
        std::memcpy(own.elements, call.tensor, call.bytes());
        return;
    }
    const std::size_t present =
        call.arithmetic->take(call.tensor, call.count, own.elements, own.exponents);
    if (call.arithmetic->scanned()) counts.add(present, call.blocks());
}

bool SmallAlgorithm::turn() {
    if (call_.count == 0) return true;
    std::array<const void*, codec::kMaxRanks> elements;
    std::array<const std::uint8_t*, codec::kMaxRanks> exponents;
    for (int r = 0; r < segment_.ranks(); ++r) {
        const Small& small = segment_.area(r).small[parity_];
        elements[static_cast<std::size_t>(r)] = small.elements;
        exponents[static_cast<std::size_t>(r)] = small.exponents;
    }
    std::array<std::uint8_t, most_blocks(kSmallBytes)> present;
    call_.arithmetic->reduce_all(call_.count, call_.arithmetic->is_exact(call_.count),
                                 elements.data(), exponents.data(), call_.tensor, present.data());
    return true;
}

}  // namespace afflux::shared
