// Opcodes and dtypes of numbers (protocol, section 8.2).
#pragma once

#include <cstdint>

#include "arithmetic/types.hpp"
#include "contract/wire.hpp"
#include "packet/partial_dtype.hpp"

namespace afflux::engine {

// Opcode and dtype of a packet, taken from its header.
class NumberOpcode {
  public:
    explicit NumberOpcode(wire::OpcodeDtype opcode_dtype)
        : value_(opcode_dtype), partial_(packet::partial_dtype(opcode_dtype)) {}

    // Whether it is one of those of numbers, known or not.
    bool of_numbers() const { return opcode() > code(wire::Opcode::Umin); }
    bool sums() const { return opcode() >= code(wire::NumberOpcode::Sum); }
    bool greatest() const { return opcode() == code(wire::NumberOpcode::Max); }

    // Whether there is such an opcode, and for such elements.
    bool known() const {
        const bool extreme = greatest() || opcode() == code(wire::NumberOpcode::Min);
        const bool sum = sums() && scale() <= kScaleMost;
        const bool numbers = 1 <= (value_ & 15) && (value_ & 15) <= 3;
        return (extreme || sum) && (numbers || partial_ != nullptr);
    }

    // Of a sum: it is multiplied by 2**-scale.
    int scale() const { return opcode() - code(wire::NumberOpcode::Sum); }
    // Of the numbers, of which there may be partial sums.
    arithmetic::Dtype dtype() const {
        return partial_ != nullptr ? partial_->of : static_cast<arithmetic::Dtype>(value_ & 15);
    }
    // Null if the blocks are not partial sums.
    const packet::PartialDtype* partial() const { return partial_; }

    // The opcode with the dtype of the numbers, and with that of partial sums; `bits` are those of
    // float32.
    wire::OpcodeDtype of_whole() const { return with(static_cast<std::uint8_t>(dtype())); }
    wire::OpcodeDtype of_partial(int bits) const {
        return with(packet::partial_dtype_of(dtype(), bits)->value);
    }

  private:
    static constexpr int kScaleMost = 6;

    template <typename Enumeration>
    static constexpr int code(Enumeration value) {
        return static_cast<int>(value);
    }

    int opcode() const { return value_ >> 4; }
    wire::OpcodeDtype with(std::uint8_t dtype) const {
        return static_cast<wire::OpcodeDtype>((value_ & 0xF0) | dtype);
    }

    wire::OpcodeDtype value_;
    const packet::PartialDtype* partial_;
};

}  // namespace afflux::engine
