// Dtypes of partial sums, and the bytes of a block of any dtype (protocol, section
// 8.6).
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/wire.hpp"

namespace afflux::packet {

// Partial sums of numbers of a dtype, as integers of so many bits.
struct PartialDtype {
    std::uint8_t value;
    wire::Dtype of;
    int bits;

    constexpr std::size_t block_bytes() const {
        const std::size_t element = of == wire::Dtype::Float32 ? 4 : 2;
        return wire::kBlockBytes / element * static_cast<std::size_t>(bits) / 8;
    }
};

inline constexpr PartialDtype kPartialDtypes[] = {
    {9, wire::Dtype::Float32, 40},  {12, wire::Dtype::Float32, 48},  {13, wire::Dtype::Float32, 64},
    {10, wire::Dtype::Float16, 32}, {11, wire::Dtype::Bfloat16, 32},
};

// The partial sums that a packet's opcode and dtype name; null if its blocks are something else.
constexpr const PartialDtype* partial_dtype(wire::OpcodeDtype pair) {
    if (pair >> 4 < static_cast<int>(wire::NumberOpcode::Sum)) return nullptr;
    for (const PartialDtype& each : kPartialDtypes) {
        if (each.value == (pair & 15)) return &each;
    }
    return nullptr;
}

// The dtype of partial sums of a dtype's numbers; `bits` are those for float32.
constexpr const PartialDtype* partial_dtype_of(wire::Dtype numbers, int bits) {
    for (const PartialDtype& each : kPartialDtypes) {
        const bool fits = numbers != wire::Dtype::Float32 || each.bits == bits;
        if (each.of == numbers && fits) return &each;
    }
    return nullptr;
}

// The bytes of each block of a packet.
constexpr std::size_t block_bytes(wire::OpcodeDtype pair) {
    const PartialDtype* partial = partial_dtype(pair);
    return partial != nullptr ? partial->block_bytes() : wire::kBlockBytes;
}

}  // namespace afflux::packet
