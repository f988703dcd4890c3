#include "sums/exact_sums.hpp"

#include <bit>
#include <cmath>
#include <cstring>

#include "arithmetic/elements.hpp"
#include "sums/environment.hpp"
#include "sums/kernels/table.hpp"

namespace afflux::sums {
namespace {

using arithmetic::at;
using arithmetic::size_of;

// Elements that fill no step, followed by zeros.
struct Padded {
    alignas(64) unsigned char bytes[4 * kStep] = {};
};

std::size_t sum_all(const Sum& sum, std::size_t count, const Arrays& arrays) {
    if (arrays.sources > arithmetic::kMaxRanks) {
        sum_one_by_one(sum, 0, count, arrays);
        return count;
    }
    const Environment environment;
    const std::size_t rest = count % kStep, whole = count - rest;
    std::size_t one_by_one = kernels().arrays(sum, whole, arrays);
    if (!rest) return one_by_one;
    Padded tails[arithmetic::kMaxRanks], result;
    const void* elements[arithmetic::kMaxRanks];
    void* out = result.bytes;
    for (int r = 0; r < arrays.sources; ++r) {
        std::memcpy(tails[r].bytes, at(sum.dtype, arrays.elements[r], whole),
                    size_of(sum.dtype) * rest);
        elements[r] = tails[r].bytes;
    }
    one_by_one += kernels().arrays(sum, kStep, {arrays.sources, elements, 1, &out});
    for (int k = 0; k < arrays.outs; ++k) {
        std::memcpy(at(sum.dtype, arrays.out[k], whole), result.bytes, size_of(sum.dtype) * rest);
    }
    return one_by_one;
}

}  // namespace

void sum_one_by_one(const Sum& sum, std::size_t first, std::size_t count, const Arrays& arrays) {
    for (std::size_t i = first; i < first + count; ++i) {
        ExactSum exact(sum);
        for (int r = 0; r < arrays.sources; ++r) {
            exact.add(arithmetic::bits_at(sum.dtype, arrays.elements[r], i));
        }
        const std::uint32_t bits = exact.rounded();
        for (int k = 0; k < arrays.outs; ++k)
            arithmetic::put_bits(sum.dtype, arrays.out[k], i, bits);
    }
}

std::size_t exact_sums(const Sum& sum, std::size_t count, int sources, const void* const* elements,
                       int outs, void* const* out) {
    return sum_all(sum, count, {sources, elements, outs, out});
}

std::size_t exact_sums(const Sum& sum, std::size_t count, int sources, const void* const* elements,
                       void* out) {
    return exact_sums(sum, count, sources, elements, 1, &out);
}

int average_scale(int ranks) {
    return std::bit_width(static_cast<unsigned>(ranks - 1));
}

void divide(Dtype dtype, int ranks, std::size_t count, void* elements) {
    const float divisor = std::ldexp(static_cast<float>(ranks), -average_scale(ranks));
    if (divisor == 1) return;
    const Environment environment;
    const std::size_t rest = count % kStep, whole = count - rest;
    kernels().divide(dtype, divisor, whole, elements);
    if (!rest) return;
    Padded tail;
    std::memcpy(tail.bytes, at(dtype, elements, whole), size_of(dtype) * rest);
    kernels().divide(dtype, divisor, kStep, tail.bytes);
    std::memcpy(at(dtype, elements, whole), tail.bytes, size_of(dtype) * rest);
}

}  // namespace afflux::sums
