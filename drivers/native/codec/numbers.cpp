#include "codec/numbers.hpp"

#include <bit>
#include <stdexcept>
#include <string>

namespace afflux::codec {

int guard_bits(int ranks) {
    return static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1)));
}

Numbers::Numbers(int ranks_, Dtype dtype_, Op op_)
    : ranks(ranks_), dtype(dtype_), op(op_), scale_power(0), unit_power(0), divisor(1) {
    if (ranks < 1 || ranks > kMaxRanks) {
        throw std::invalid_argument("an operation must have 1 to 64 ranks, not " +
                                    std::to_string(ranks));
    }
    if (dtype > Dtype::Bfloat16 || op > Op::Min || !is_defined(dtype, op)) {
        throw std::invalid_argument("no such operation: reduction " +
                                    std::to_string(static_cast<int>(op)) + " of dtype " +
                                    std::to_string(static_cast<int>(dtype)));
    }
    scale_power = 30 - guard_bits(ranks) + 127;
    unit_power = -scale_power;
    if (op != Op::Avg) return;
    if (std::has_single_bit(static_cast<unsigned>(ranks))) {
        unit_power -= guard_bits(ranks);
    } else {
        divisor = ranks;
    }
}

}  // namespace afflux::codec
