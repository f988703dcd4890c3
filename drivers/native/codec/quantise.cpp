#include "codec/quantise.hpp"

#include "codec/environment.hpp"
#include "codec/kernels/table.hpp"

namespace afflux::codec {

void quantise(const Numbers& numbers, std::size_t blocks, const void* elements,
              const std::uint8_t* exponents, std::int32_t* out) {
    const FloatEnvironment environment;
    kernels().quantise(numbers, blocks, elements, exponents, out);
}

void dequantise(const Numbers& numbers, std::size_t blocks, const std::int32_t* sums,
                const std::uint8_t* exponents, void* out) {
    const FloatEnvironment environment;
    kernels().dequantise(numbers, blocks, sums, exponents, out);
}

}  // namespace afflux::codec
