// Chooses the loops of an element type, and makes the table of one instruction set's.
#pragma once

#include "arithmetic/kernels/extreme_kernel.hpp"
#include "sums/kernels/array_kernel.hpp"
#include "sums/kernels/partial_kernel.hpp"

namespace afflux::sums {

namespace {

constexpr std::size_t kBlockBytes = wire::kBlockBytes;

// Calls `with.operator()<kType>()` for the type that `dtype` is; integers have no sums here.
template <typename With>
inline void with_float(Dtype dtype, With with) {
    switch (dtype) {
        case Dtype::Float32:
            return with.template operator()<Dtype::Float32>();
        case Dtype::Float16:
            return with.template operator()<Dtype::Float16>();
        case Dtype::Bfloat16:
            return with.template operator()<Dtype::Bfloat16>();
        case Dtype::Int32:
            return;
    }
}

std::size_t arrays_kernel(const Sum& sum, std::size_t count, const Arrays& arrays) {
    std::size_t one_by_one = 0;
    // Tensors that are summed in place come from memory, other elements from a cache.
    const bool in_place = static_cast<const void*>(arrays.out) == arrays.elements;
    with_float(sum.dtype, [&]<Dtype kType>() {
        one_by_one = in_place ? sum_arrays<kType, true>(sum, count, arrays)
                              : sum_arrays<kType, false>(sum, count, arrays);
    });
    return one_by_one;
}

// Calls `with.operator()<kType>(at, sums)` for each vector's byte in a block, and its sums.
template <typename With>
inline void each_vector(Dtype dtype, auto* sums, With with) {
    with_float(dtype, [&]<Dtype kType>() {
        for (std::size_t at = 0; at < kBlockBytes; at += arithmetic::bytes_of(kType) * kLanes) {
            with.template operator()<kType>(at, sums + at / arithmetic::bytes_of(kType));
        }
    });
}

void open_kernel(Dtype dtype, const void* block, double* sums) {
    const auto* from = static_cast<const std::byte*>(block);
    each_vector(dtype, sums, [&]<Dtype kType>(std::size_t at, double* to) {
        put(to, widen(floats_of<kType>(from + at)));
    });
}

bool add_kernel(Dtype dtype, const void* block, double* sums) {
    const auto* from = static_cast<const std::byte*>(block);
    each_vector(dtype, sums, [&]<Dtype kType>(std::size_t at, double* to) {
        Wide wide = get<Wide>(to);
        wide += widen(floats_of<kType>(from + at));
        put(to, wide);
    });
    if (!inexact(sums)) return true;
    clear_inexact(sums);
    return false;
}

void round_kernel(const Sum& sum, const double* sums, void* block) {
    const Scaling scaling(sum);
    each_vector(sum.dtype, sums, [&]<Dtype kType>(std::size_t at, const double* from) {
        const auto vector = rounded<kType>(scaling(get<Wide>(from)));
        store(static_cast<std::byte*>(block) + at, vector);
    });
    clear_inexact(sums);
}

int split_kernel(Dtype dtype, int most, bool all_present, double* sums, void* const* terms) {
    const Scaling scaling({dtype, 0, all_present});
    const auto neutral = [](Doubles x) {
        return as<Doubles>(as<Longs>(x) | ((x == 0) & INT64_MIN));
    };
    int needed = 0;
    for (int k = 0; k < most && !needed; ++k) {
        Longs left{};
        each_vector(dtype, sums, [&]<Dtype kType>(std::size_t at, double* from) {
            Wide wide = get<Wide>(from);
            // -0 is what added to anything changes nothing.
            wide = k ? Wide{neutral(wide.low), neutral(wide.high)} : scaling(wide);
            std::byte* const term = static_cast<std::byte*>(terms[k]) + at;
            store(term, rounded<kType>(wide));
            const Wide back = widen(floats_of<kType>(term));
            // Exact: what rounding leaves has no more bits than what it rounds.
            wide = {wide.low - back.low, wide.high - back.high};
            left |= (wide.low != 0) | (wide.high != 0);
            put(from, wide);
        });
        bool any = false;
        for (std::size_t i = 0; i < kLanes / 2; ++i) any = any || left[i] != 0;
        if (!any) needed = k + 1;
    }
    clear_inexact(sums);
    return needed;
}

void divide_kernel(Dtype dtype, float divisor, std::size_t count, void* elements) {
    with_float(dtype, [&]<Dtype kType>() {
        // float32 has the quotient of two elements of a 16-bit type to twice their bits and more,
        // so that rounding it again is as if it had all bits.
        for (std::size_t i = 0; i < count; i += kLanes) {
            std::byte* at = static_cast<std::byte*>(elements) + arithmetic::bytes_of(kType) * i;
            const Floats quotient = floats_of<kType>(at) / divisor;
            if constexpr (kType == Dtype::Float32) {
                store(at, one_nan(quotient));
            } else {
                store(at, narrow<kType>(quotient));
            }
        }
    });
}

void extremes_kernel(Dtype dtype, bool greatest, std::size_t blocks, int sources,
                     const void* const* elements, void* out) {
    with_float(dtype, [&]<Dtype kType>() {
        constexpr std::size_t kBytes = arithmetic::kBlock * arithmetic::bytes_of(kType);
        for (std::size_t at = 0; at < blocks * kBlockBytes; at += kBytes) {
            const std::byte* here[arithmetic::kMaxRanks];
            for (int r = 0; r < sources; ++r) {
                here[r] = static_cast<const std::byte*>(elements[r]) + at;
            }
            std::byte* to = static_cast<std::byte*>(out) + at;
            if (greatest) {
                arithmetic::Extreme<kType, true>::of(sources, here, to);
            } else {
                arithmetic::Extreme<kType, false>::of(sources, here, to);
            }
        }
    });
}

constexpr Kernels kKernels = {
    arrays_kernel,      open_kernel,    add_kernel,    round_kernel,    split_kernel,
    add_partial_kernel, partial_kernel, divide_kernel, extremes_kernel,
};

}  // namespace

}  // namespace afflux::sums
