// The layer between a shim that was written for Verilator and a model that CXXRTL has written.
//
// The generated header `NAME.h` beside it defines the class that the shim includes by this means: a
// member for each port, `eval` and `final`. The shims know nothing else of Verilator but these.
//
// `plant_difference` is for a test of the comparison: it makes one cycle wrong.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

using CData = uint8_t;
using SData = uint16_t;
using IData = uint32_t;
using QData = uint64_t;

class VerilatedContext {};

namespace pins {

// Evaluations, two of which are a cycle, in which one input is not seen while a beat is offered.
inline int hidden_evaluations = 0;

template <size_t BITS>
void into(cxxrtl::value<BITS>& port, uint64_t pin) {
    port.data[0] = static_cast<uint32_t>(pin);
    if constexpr (BITS > 32) port.data[1] = static_cast<uint32_t>(pin >> 32);
    static_assert(BITS <= 64);
}

template <size_t BITS, size_t WORDS>
void into(cxxrtl::value<BITS>& port, const uint32_t (&pin)[WORDS]) {
    static_assert(BITS == 32 * WORDS);
    std::memcpy(port.data, pin, sizeof pin);
}

template <size_t BITS>
const cxxrtl::value<BITS>& current(const cxxrtl::value<BITS>& port) {
    return port;
}

template <size_t BITS>
const cxxrtl::value<BITS>& current(const cxxrtl::wire<BITS>& port) {
    return port.curr;
}

template <typename Port, typename Pin>
void out_of(const Port& port, Pin& pin) {
    const auto& value = current(port);
    if constexpr (std::is_array_v<Pin>) {
        static_assert(sizeof pin == sizeof value.data);
        std::memcpy(pin, value.data, sizeof pin);
    } else {
        uint64_t whole = value.data[0];
        if constexpr (sizeof value.data > 4) whole |= uint64_t{value.data[1]} << 32;
        pin = static_cast<Pin>(whole);
    }
}

}  // namespace pins

// Hide `tx_ready` in the next cycle with a beat on `tx`.
extern "C" void plant_difference() { pins::hidden_evaluations = 2; }
