// Element types, reductions and blocks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/wire.hpp"

namespace afflux::arithmetic {

using wire::Dtype;

// Reductions, of which Avg is not defined for Int32. wire::Opcode is what an aggregator does for
// them: to it, Avg is a sum.
enum class Op : std::uint8_t { Sum = 0, Avg = 1, Max = 2, Min = 3 };

// Words of a block.
inline constexpr std::size_t kBlock = wire::kBlockElements;

// Maximum of ranks in an operation.
inline constexpr int kMaxRanks = wire::kWorkersMax;

// Bytes of an element.
constexpr std::size_t size_of(Dtype dtype) {
    return dtype == Dtype::Int32 || dtype == Dtype::Float32 ? 4 : 2;
}

// Blocks that hold `count` elements; the last one may be short.
constexpr std::size_t blocks_of(std::size_t count) {
    return count / kBlock + (count % kBlock != 0);
}

// Whether a reduction adds. Then zero is its identity, and blocks of zeros need not move.
constexpr bool is_sum(Op op) {
    return op == Op::Sum || op == Op::Avg;
}

// Whether the protocol defines such an operation.
constexpr bool is_defined(Dtype dtype, Op op) {
    return !(dtype == Dtype::Int32 && op == Op::Avg);
}

}  // namespace afflux::arithmetic
