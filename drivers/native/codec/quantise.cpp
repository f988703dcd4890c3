#include "codec/quantise.hpp"

#include <algorithm>

#include "codec/elements.hpp"
#include "codec/environment.hpp"
#include "codec/kernels/table.hpp"

namespace afflux::codec {

void quantise(const Numbers& numbers, std::size_t blocks, const void* elements,
              const std::uint8_t* exponents, std::int32_t* out) {
    const FloatEnvironment environment;
    kernels().quantise(numbers, blocks, elements, exponents, out, false, 0, nullptr);
}

void dequantise(const Numbers& numbers, std::size_t blocks, const std::int32_t* sums,
                const std::uint8_t* exponents, void* out) {
    const FloatEnvironment environment;
    kernels().dequantise(numbers, blocks, sums, exponents, out, false);
}

void encode(const Numbers& numbers, std::size_t blocks, std::size_t row_blocks,
            const void* elements, std::uint8_t* exponents, std::int32_t* out) {
    const FloatEnvironment environment;
    const Kernels& kernel = kernels();
    // Row -1 is empty: only row 0 is scanned.
    std::size_t row = 0, size = 0;
    while (true) {
        const std::size_t next = row + size, next_size = std::min(row_blocks, blocks - next);
        kernel.quantise(numbers, size, at(numbers.dtype, elements, row * kBlock), exponents + row,
                        out + row * kBlock, true, next_size, exponents + next);
        if (next == blocks) return;
        row = next;
        size = next_size;
    }
}

void decode(const Numbers& numbers, std::size_t blocks, const std::int32_t* sums,
            const std::uint8_t* exponents, void* out) {
    const FloatEnvironment environment;
    kernels().dequantise(numbers, blocks, sums, exponents, out, true);
}

}  // namespace afflux::codec
