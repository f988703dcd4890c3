#include "codec/kernels/slow_path.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "codec/classes.hpp"
#include "codec/elements.hpp"
#include "codec/scan.hpp"

namespace afflux::codec {

namespace {

using Words = std::array<std::int32_t, kBlock>;

void add(Words& sums, const Words& words) {
    for (std::size_t i = 0; i < kBlock; ++i) sums[i] += words[i];
}

double power_of_two(int power) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(1023 + power) << 52);
}

}  // namespace

void quantise_block(const Numbers& numbers, const void* block, unsigned exponent,
                    std::int32_t* out) {
    // A double times a power of two is exact: nothing leaves double's normal range.
    const double scale = power_of_two(numbers.scale_power - static_cast<int>(exponent));
    for (std::size_t i = 0; i < kBlock; ++i) {
        const std::uint32_t bits = widen(numbers.dtype, bits_at(numbers.dtype, block, i));
        const double x = is_finite(bits) ? std::bit_cast<float>(bits) : 0.0F;
        out[i] = static_cast<std::int32_t>(std::nearbyint(x * scale));
    }
}

void dequantise_block(const Numbers& numbers, const std::int32_t* sums, unsigned exponent,
                      void* out) {
    const double unit = power_of_two(numbers.unit_power + static_cast<int>(exponent));
    const Format format = format_of(numbers.dtype);
    for (std::size_t i = 0; i < kBlock; ++i) {
        put_bits(numbers.dtype, out, i, round_to(format, sums[i] * unit / numbers.divisor));
    }
}

void reduce_block(const Numbers& numbers, int sources, const void* const* blocks, void* out) {
    const Dtype dtype = numbers.dtype;
    Words sums{}, classes{}, words;
    std::uint8_t agreed = 1;
    for (int r = 0; r < sources; ++r) {
        agreed = std::max(agreed, finite_exponent(dtype, blocks[r], kBlock));
    }
    for (int r = 0; r < sources; ++r) {
        quantise_block(numbers, blocks[r], agreed, words.data());
        add(sums, words);
        class_counts(dtype, blocks[r], kBlock, words.data());
        add(classes, words);
    }
    // Every source has been read: `out` may be one of them.
    dequantise_block(numbers, sums.data(), agreed, out);
    overlay_classes(dtype, classes.data(), kBlock, out);
}

}  // namespace afflux::codec
