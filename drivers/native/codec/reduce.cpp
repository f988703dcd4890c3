#include "codec/reduce.hpp"

#include <array>

#include "codec/elements.hpp"
#include "codec/environment.hpp"
#include "codec/exact.hpp"
#include "codec/kernels/table.hpp"
#include "codec/padded.hpp"

namespace afflux::codec {

void reduce(const Numbers& numbers, std::size_t blocks, int sources, const void* const* elements,
            const std::uint8_t* const* exponents, void* out, std::uint8_t* present) {
    const FloatEnvironment environment;
    kernels().reduce(numbers, blocks, sources, elements, exponents, out, present);
}

void reduce_in_place(const Numbers& numbers, std::size_t count, int sources,
                     void* const* elements) {
    const FloatEnvironment environment;
    const Dtype dtype = numbers.dtype;
    const std::size_t whole = count / kBlock, rest = count % kBlock;
    kernels().reduce_in_place(numbers, whole, sources, elements);
    if (!rest) return;
    std::array<Padded, kMaxRanks> tails;
    void* blocks[kMaxRanks];
    for (int r = 0; r < sources; ++r) {
        Padded& tail = tails[static_cast<std::size_t>(r)];
        std::memcpy(tail.block, at(dtype, elements[r], whole * kBlock), size_of(dtype) * rest);
        blocks[r] = tail.block;
    }
    kernels().reduce_in_place(numbers, 1, sources, blocks);
    for (int r = 0; r < sources; ++r) {
        std::memcpy(at(dtype, elements[r], whole * kBlock), blocks[r], size_of(dtype) * rest);
    }
}

void exact(const Numbers& numbers, std::size_t count, int sources, const void* const* elements,
           void* out) {
    for (std::size_t i = 0; i < count; ++i) {
        std::int32_t sums[wire::kExactWords] = {}, words[wire::kExactWords];
        for (int r = 0; r < sources; ++r) {
            exact_encode(numbers.dtype, at(numbers.dtype, elements[r], i), 1, words);
            for (std::size_t k = 0; k < wire::kExactWords; ++k) sums[k] += words[k];
        }
        exact_decode(numbers, sums, 1, at(numbers.dtype, out, i));
    }
}

}  // namespace afflux::codec
