// Access to single elements in memory, for the plain loops.
#pragma once

#include <bit>
#include <cstring>

#include "arithmetic/rounding.hpp"
#include "arithmetic/types.hpp"

namespace afflux::arithmetic {

// The address of element `index`.
inline const void* at(Dtype dtype, const void* elements, std::size_t index) {
    return static_cast<const unsigned char*>(elements) + size_of(dtype) * index;
}
inline void* at(Dtype dtype, void* elements, std::size_t index) {
    return static_cast<unsigned char*>(elements) + size_of(dtype) * index;
}

// The bits of element `index`.
inline std::uint32_t bits_at(Dtype dtype, const void* elements, std::size_t index) {
    const auto* bytes = static_cast<const unsigned char*>(elements);
    if (size_of(dtype) == 4) {
        std::uint32_t bits;
        std::memcpy(&bits, bytes + 4 * index, 4);
        return bits;
    }
    std::uint16_t bits;
    std::memcpy(&bits, bytes + 2 * index, 2);
    return bits;
}

inline void put_bits(Dtype dtype, void* elements, std::size_t index, std::uint32_t bits) {
    auto* bytes = static_cast<unsigned char*>(elements);
    if (size_of(dtype) == 4) {
        std::memcpy(bytes + 4 * index, &bits, 4);
    } else {
        const auto low = static_cast<std::uint16_t>(bits);
        std::memcpy(bytes + 2 * index, &low, 2);
    }
}

// The float32 that has the value of an element of a floating-point type, as bits.
inline std::uint32_t widen(Dtype dtype, std::uint32_t bits) {
    if (dtype == Dtype::Float32) return bits;
    if (dtype == Dtype::Bfloat16) return bits << 16;
    const std::uint32_t sign = (bits & 0x8000) << 16, field = bits >> 10 & 31;
    std::uint32_t fraction = bits & 0x3FF;
    if (field == 31) return sign | 0x7F800000 | fraction << 13;
    if (field) return sign | (field + 112) << 23 | fraction << 13;
    if (fraction == 0) return sign;
    // A denormal of float16 is a normal float32.
    const int shift = 11 - std::bit_width(fraction);
    fraction = fraction << shift & 0x3FF;
    return sign | static_cast<std::uint32_t>(113 - shift) << 23 | fraction << 13;
}

// The inverse, exact for results of `widen`.
inline std::uint32_t narrow_exactly(Dtype dtype, std::uint32_t bits) {
    if (dtype == Dtype::Float32) return bits;
    if (dtype == Dtype::Bfloat16) return bits >> 16;
    const std::uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
    if (magnitude >= 0x7F800000) return sign | 0x7C00 | (magnitude >> 13 & 0x3FF);
    const int field = static_cast<int>(magnitude >> 23);
    if (field > 112) return sign | ((magnitude - (112u << 23)) >> 13);
    if (field < 103) return sign;
    return sign | ((magnitude & 0x7FFFFF) | 1u << 23) >> (126 - field);
}

inline bool is_finite(std::uint32_t float32_bits) {
    return (float32_bits & 0x7F800000) != 0x7F800000;
}

}  // namespace afflux::arithmetic
