// The inner loops of sums, compiled for one instruction set.
#pragma once

#include <cstddef>

#include "sums/exact_sum.hpp"

namespace afflux::sums {

// Elements for which the loops below are made: multiples of this.
inline constexpr std::size_t kStep = 64;

// Where elements are, and where each result goes.
struct Arrays {
    int sources;
    const void* const* elements;
    int outs;
    void* const* out;
};

// None but `divide` and `extremes` leaves the flag of inexact
// results set, and all rely on it to be clear.
struct Kernels {
    // exact_sums.hpp, of a multiple of kStep elements.
    std::size_t (*arrays)(const Sum& sum, std::size_t count, const Arrays& arrays);
    // sum_block.hpp.
    void (*open)(Dtype dtype, const void* block, double* sums);
    bool (*add)(Dtype dtype, const void* block, double* sums);
    void (*round)(const Sum& sum, const double* sums, void* block);
    int (*split)(Dtype dtype, int most, bool all_present, double* sums, void* const* terms);
    // The same, of integers of so many bits in units of a power of two.
    bool (*add_partial)(int bits, int unit, const void* block, bool first, double* sums);
    void (*partial)(int bits, int unit, bool all_present, const double* sums, void* block);
    // exact_sums.hpp, of a multiple of kStep elements.
    void (*divide)(Dtype dtype, float divisor, std::size_t count, void* elements);
    // extreme.hpp.
    void (*extremes)(Dtype dtype, bool greatest, std::size_t blocks, int sources,
                     const void* const* elements, void* out);
};

extern const Kernels kDefaultKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#endif

// Those of the instruction set in use (arithmetic/instruction_set.hpp).
const Kernels& kernels();

// Writes the sums of elements first … first + count - 1 by ExactSum.
void sum_one_by_one(const Sum& sum, std::size_t first, std::size_t count, const Arrays& arrays);

}  // namespace afflux::sums
