// Single 32-bit accesses to registers that a process has mapped; Python has none to offer.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>

#include "bindings/parts.hpp"
#include "registers/window.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace afflux::bindings {
namespace {

template <typename Octet>
using Window = nb::ndarray<Octet, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

}  // namespace

void bind_registers(nb::module_& module) {
    module.def(
        "read_register",
        [](const Window<const std::uint8_t>& window, std::size_t address) {
            return registers::read(window.data(), window.size(), address);
        },
        "window"_a, "address"_a,
        "Read a register of a window, by one access of 32 bits. Addresses are in bytes.");
    module.def(
        "write_register",
        [](const Window<std::uint8_t>& window, std::size_t address, std::uint32_t value) {
            registers::write(window.data(), window.size(), address, value);
        },
        "window"_a, "address"_a, "value"_a,
        "Write a register of a window, by one access of 32 bits. Addresses are in bytes.");
}

}  // namespace afflux::bindings
