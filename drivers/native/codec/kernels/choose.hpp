// Chooses the kernel of an operation, and makes the table of one instruction set's kernels.
#pragma once

#include "codec/kernels/extreme_kernel.hpp"
#include "codec/kernels/packet_kernel.hpp"
#include "codec/kernels/scan_kernel.hpp"
#include "codec/kernels/sum_kernel.hpp"
#include "codec/kernels/table.hpp"

namespace afflux::codec {

namespace {

// Calls `with` with a pointer to the type that does `numbers`' operation on a block.
template <Dtype kType, typename With>
void choose_for(const Numbers& numbers, With with) {
    if (numbers.op == Op::Max) return with(static_cast<Extreme<kType, true>*>(nullptr));
    if (numbers.op == Op::Min) return with(static_cast<Extreme<kType, false>*>(nullptr));
    if constexpr (kType == Dtype::Int32) {
        with(static_cast<IntegerSum*>(nullptr));
    } else if (numbers.divisor != 1) {
        with(static_cast<FloatSum<kType, true>*>(nullptr));
    } else {
        with(static_cast<FloatSum<kType, false>*>(nullptr));
    }
}

template <typename With>
void choose(const Numbers& numbers, With with) {
    with_type(numbers.dtype, [&]<Dtype kType>() { choose_for<kType>(numbers, with); });
}

template <typename T>
constexpr bool kIsSum = requires { T::kType; };

void reduce_kernel(const Numbers& numbers, std::size_t blocks, int sources,
                   const void* const* elements, const std::uint8_t* const* exponents, void* out,
                   std::uint8_t* present) {
    choose(numbers, [&]<typename T>(T*) {
        if constexpr (kIsSum<T>) {
            reduce_sum<T>(numbers, blocks, sources, elements, exponents, out, present);
        } else {
            reduce_extreme<T>(blocks, sources, elements, out, present);
        }
    });
}

void reduce_in_place_kernel(const Numbers& numbers, std::size_t blocks, int sources,
                            void* const* elements) {
    choose(numbers, [&]<typename T>(T*) {
        if constexpr (kIsSum<T>) {
            reduce_sum_in_place<T>(numbers, blocks, sources, elements);
        } else {
            reduce_extreme_in_place<T>(blocks, sources, elements);
        }
    });
}

constexpr Kernels kernels_named(const char* name) {
    return {name,
            scan_kernel,
            scan_clear_kernel,
            reduce_kernel,
            reduce_in_place_kernel,
            quantise_kernel,
            dequantise_kernel};
}

}  // namespace

}  // namespace afflux::codec
