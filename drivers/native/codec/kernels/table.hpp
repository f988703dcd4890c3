// The inner loops of the codec, compiled for one instruction set.
#pragma once

#include "codec/numbers.hpp"
#include "codec/types.hpp"

namespace afflux::codec {

// All work on whole blocks; elements, `out` and sums need no alignment. scan.hpp, reduce.hpp and
// quantise.hpp describe the functions of the same names.
struct Kernels {
    const char* name;
    // Both copy only if `out` is not null.
    void (*scan)(Dtype dtype, std::size_t blocks, const void* elements, void* out,
                 std::uint8_t* exponents);
    void (*scan_clear)(Dtype dtype, std::size_t blocks, void* elements, void* out,
                       std::uint8_t* exponents);
    void (*reduce)(const Numbers& numbers, std::size_t blocks, int sources,
                   const void* const* elements, const std::uint8_t* const* exponents, void* out,
                   std::uint8_t* present);
    void (*reduce_in_place)(const Numbers& numbers, std::size_t blocks, int sources,
                            void* const* elements);
    void (*quantise)(const Numbers& numbers, std::size_t blocks, const void* elements,
                     const std::uint8_t* exponents, std::int32_t* out);
    void (*dequantise)(const Numbers& numbers, std::size_t blocks, const std::int32_t* sums,
                       const std::uint8_t* exponents, void* out);
};

// Any processor of the architecture can run the first.
extern const Kernels kDefaultKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#endif

// The kernels in use.
const Kernels& kernels();

}  // namespace afflux::codec
