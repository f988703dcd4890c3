// numpy arrays as memory: contiguous, on the CPU, of a size that the callee asks for.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <string>

namespace afflux::bindings {

// Elements of any type: bfloat16 travels as its 16 bits in uint16.
using Input = nanobind::ndarray<nanobind::ro, nanobind::c_contig, nanobind::device::cpu>;
using Output = nanobind::ndarray<nanobind::c_contig, nanobind::device::cpu>;

// Throws ValueError unless `array` has `bytes` bytes.
template <typename Array>
void expect_bytes(const Array& array, std::size_t bytes, const char* name) {
    if (array.nbytes() != bytes) {
        const std::string text = std::string(name) + " has " + std::to_string(array.nbytes()) +
                                 " bytes where " + std::to_string(bytes) + " are needed";
        throw nanobind::value_error(text.c_str());
    }
}

}  // namespace afflux::bindings
