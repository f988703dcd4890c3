// Opcodes and dtypes of numbers (version 2 of the protocol, section 2).
#pragma once

#include <cstdint>

#include "codec/types.hpp"
#include "contract/wire.hpp"

namespace afflux::engine {

// Opcode and dtype of a packet, taken from its header.
class NumberOpcode {
  public:
    explicit NumberOpcode(wire::OpcodeDtype opcode_dtype) : value_(opcode_dtype) {}

    // Whether it is one of those of numbers, known or not.
    bool of_numbers() const { return opcode() > code(wire::Opcode::Umin); }
    bool sums() const { return opcode() >= code(wire::NumberOpcode::Sum); }
    bool greatest() const { return opcode() == code(wire::NumberOpcode::Max); }

    // Whether there is such an opcode, and for such elements.
    bool known() const {
        const bool extreme = greatest() || opcode() == code(wire::NumberOpcode::Min);
        const bool sum = sums() && scale() <= kScaleMost;
        return (extreme || sum) && 1 <= (value_ & 15) && (value_ & 15) <= 3;
    }

    // Of a sum: it is multiplied by 2**-scale.
    int scale() const { return opcode() - code(wire::NumberOpcode::Sum); }
    codec::Dtype dtype() const { return static_cast<codec::Dtype>(value_ & 15); }

  private:
    static constexpr int kScaleMost = 6;

    template <typename Enumeration>
    static constexpr int code(Enumeration value) {
        return static_cast<int>(value);
    }

    int opcode() const { return value_ >> 4; }

    wire::OpcodeDtype value_;
};

}  // namespace afflux::engine
