#include "sums/exact_sums.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "codec/elements.hpp"
#include "codec/numbers.hpp"
#include "sums/environment.hpp"
#include "sums/kernels/table.hpp"

namespace afflux::sums {
namespace {

using codec::at;
using codec::size_of;

// Elements that fill no step, followed by zeros.
struct Padded {
    alignas(64) unsigned char bytes[4 * kStep] = {};
};

std::size_t sum_all(const Sum& sum, std::size_t count, const Arrays& arrays) {
    const Environment environment;
    const std::size_t rest = count % kStep, whole = count - rest;
    std::size_t one_by_one = kernels().arrays(sum, whole, arrays);
    if (!rest) return one_by_one;
    Padded tails[codec::kMaxRanks], result;
    const void* elements[codec::kMaxRanks];
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
            exact.add(codec::bits_at(sum.dtype, arrays.elements[r], i));
        }
        const std::uint32_t bits = exact.rounded();
        for (int k = 0; k < arrays.outs; ++k) codec::put_bits(sum.dtype, arrays.out[k], i, bits);
    }
}

std::size_t exact_sums(const Sum& sum, std::size_t count, int sources, const void* const* elements,
                       void* out) {
    return sum_all(sum, count, {sources, elements, 1, &out});
}

std::size_t exact_sums_in_place(const Sum& sum, std::size_t count, int sources,
                                void* const* elements) {
    return sum_all(sum, count, {sources, elements, sources, elements});
}

std::size_t exact_sums_of_present(const Sum& sum, std::size_t blocks, int sources,
                                  const void* const* elements, const std::uint8_t* const* present,
                                  void* out, std::uint8_t* some, void* also) {
    const Environment environment;
    const std::size_t count = wire::kBlockBytes / size_of(sum.dtype);
    const auto sum_run = [&](std::size_t first, std::size_t last, int having, const void** here) {
        for (int i = 0; i < having; ++i) here[i] = at(sum.dtype, here[i], first * count);
        Sum part = sum;
        part.all_present = sum.all_present && having == sources;
        void* to[] = {at(sum.dtype, out, first * count), nullptr};
        if (also) to[1] = at(sum.dtype, also, first * count);
        const Arrays arrays{having, here, also ? 2 : 1, to};
        return kernels().arrays(part, (last - first) * count, arrays);
    };
    const void* here[codec::kMaxRanks];
    const auto has_all = [&](const std::uint8_t* flags) { return !std::memchr(flags, 0, blocks); };
    if (std::all_of(present, present + sources, has_all)) {
        std::memset(some, 1, blocks);
        std::copy_n(elements, sources, here);
        return sum_run(0, blocks, sources, here);
    }
    const auto there = [&](std::size_t block) {
        std::uint64_t mask = 0;
        for (int r = 0; r < sources; ++r) mask |= std::uint64_t{present[r][block] != 0} << r;
        return mask;
    };
    std::size_t one_by_one = 0;
    std::uint64_t next = there(0);
    for (std::size_t block = 0; block < blocks;) {
        // Blocks that the same sources have are summed together.
        const std::uint64_t mask = next;
        const std::size_t first = block;
        do {
            some[block] = mask != 0;
        } while (++block < blocks && (next = there(block)) == mask);
        if (!mask) continue;
        int having = 0;
        for (int r = 0; r < sources; ++r) {
            if (mask >> r & 1) here[having++] = elements[r];
        }
        one_by_one += sum_run(first, block, having, here);
    }
    return one_by_one;
}

int average_scale(int ranks) {
    return codec::guard_bits(ranks);
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
