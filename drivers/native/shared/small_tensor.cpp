#include "shared/small_tensor.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "codec/reduce.hpp"
#include "codec/scan.hpp"

namespace afflux::shared {
namespace {

bool is_exact(const Call& call) {
    return codec::is_exact(call.numbers->dtype, call.numbers->op, call.count);
}

}  // namespace

SmallAlgorithm::SmallAlgorithm(const Segment& segment, int rank, unsigned parity, const Call& call,
                               BlockCounts& counts)
    : segment_(segment), parity_(parity), call_(call) {
    Small& own = segment.area(rank).small[parity_];
    if (call.count == 0) return;
    if (is_exact(call) || !call.is_sum()) {
        std::memcpy(own.elements, call.data, call.count * call.element_bytes());
        return;
    }
    codec::scan_copy(call.numbers->dtype, call.data, call.count, own.elements, own.exponents);
    counts.total += call.blocks();
    counts.present += call.blocks() - static_cast<std::uint64_t>(std::count(
                                          own.exponents, own.exponents + call.blocks(), 0));
}

bool SmallAlgorithm::turn() {
    if (call_.count == 0) return true;
    const int ranks = segment_.ranks();
    std::array<const void*, codec::kMaxRanks> elements;
    std::array<const std::uint8_t*, codec::kMaxRanks> exponents;
    for (int r = 0; r < ranks; ++r) {
        const Small& small = segment_.area(r).small[parity_];
        elements[static_cast<std::size_t>(r)] = small.elements;
        exponents[static_cast<std::size_t>(r)] = small.exponents;
    }
    if (is_exact(call_)) {
        codec::exact(*call_.numbers, call_.count, ranks, elements.data(), call_.data);
        return true;
    }
    // Whole blocks go directly into the tensor, the last one, if it is short, through the stack.
    const std::size_t whole = call_.count / codec::kBlock, rest = call_.count % codec::kBlock;
    const std::size_t block_bytes = codec::kBlock * call_.element_bytes();
    std::array<std::uint8_t, most_blocks(kSmallBytes)> present;
    codec::reduce(*call_.numbers, whole, ranks, elements.data(), exponents.data(), call_.data,
                  present.data());
    if (rest != 0) {
        alignas(64) std::array<std::byte, codec::kBlock * sizeof(std::uint32_t)> last;
        for (int r = 0; r < ranks; ++r) {
            const auto i = static_cast<std::size_t>(r);
            elements[i] = static_cast<const std::byte*>(elements[i]) + whole * block_bytes;
            exponents[i] += whole;
        }
        codec::reduce(*call_.numbers, 1, ranks, elements.data(), exponents.data(), last.data(),
                      &present[whole]);
        if (present[whole])
            std::memcpy(call_.data + whole * block_bytes, last.data(),
                        rest * call_.element_bytes());
    }
    for (std::size_t b = 0; b < call_.blocks(); ++b)
        if (!present[b])
            codec::clear(call_.numbers->dtype, call_.data + b * block_bytes,
                         std::min(codec::kBlock, call_.count - b * codec::kBlock));
    return true;
}

}  // namespace afflux::shared
