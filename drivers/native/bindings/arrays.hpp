// Arguments from Python, as memory, element types and reductions.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <string>

#include "arithmetic/types.hpp"

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

inline arithmetic::Dtype dtype_of(int number) {
    if (number < 0 || number > static_cast<int>(arithmetic::Dtype::Bfloat16)) {
        throw nanobind::value_error(("no dtype has the number " + std::to_string(number)).c_str());
    }
    return static_cast<arithmetic::Dtype>(number);
}

inline arithmetic::Op op_of(int number) {
    if (number < 0 || number > static_cast<int>(arithmetic::Op::Min)) {
        throw nanobind::value_error(
            ("no reduction has the number " + std::to_string(number)).c_str());
    }
    return static_cast<arithmetic::Op>(number);
}

// Elements of an array in the storage of `dtype`. Throws ValueError if it is of another one.
template <typename Array>
std::size_t count_of(const Array& elements, arithmetic::Dtype dtype) {
    if (elements.itemsize() != arithmetic::size_of(dtype)) {
        throw nanobind::value_error("elements are not in the storage of their dtype");
    }
    return elements.size();
}

}  // namespace afflux::bindings
