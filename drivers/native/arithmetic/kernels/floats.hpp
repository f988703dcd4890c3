// Elements of each floating-point type as vectors.
#pragma once

#include "arithmetic/kernels/lanes.hpp"
#include "arithmetic/types.hpp"

namespace afflux::arithmetic {

namespace {

constexpr std::size_t kVectors = kBlock / kLanes;

constexpr std::size_t bytes_of(Dtype dtype) {
    return dtype == Dtype::Int32 || dtype == Dtype::Float32 ? 4 : 2;
}

// Calls `with.operator()<kType>()` for the type that `dtype` is.
template <typename With>
inline void with_type(Dtype dtype, With with) {
    switch (dtype) {
        case Dtype::Int32:
            return with.template operator()<Dtype::Int32>();
        case Dtype::Float32:
            return with.template operator()<Dtype::Float32>();
        case Dtype::Float16:
            return with.template operator()<Dtype::Float16>();
        case Dtype::Bfloat16:
            return with.template operator()<Dtype::Bfloat16>();
    }
}

// kLanes elements as float32.
template <Dtype kType>
inline Floats load_floats(const std::byte* from) {
    if constexpr (kType == Dtype::Float32) {
        return load<Floats>(from);
    } else if constexpr (kType == Dtype::Bfloat16) {
        return as<Floats>(extend(load<Shorts>(from)) << 16);
    } else {
        return from_half(load<Shorts>(from));
    }
}

}  // namespace

}  // namespace afflux::arithmetic
