// Plain code for the blocks that the kernels do not handle. These are blocks with NaN or
// infinities, and those whose exponent is so small that float32 arithmetic would meet denormals.
#pragma once

#include "codec/numbers.hpp"

namespace afflux::codec {

// From this exponent on, float32 arithmetic gives the bits of exact arithmetic. The scale,
// 2**(157 - g - E), and the unit, 2**(E - 157 + g) divided by up to 64, are normal float32 numbers.
// Scaling is then exact (a product that becomes denormal rounds to 0 either way). On the way back a
// sum is rounded once, no result is denormal, and one that overflows is infinite, as it should be.
inline constexpr unsigned kLeastSingle = 40;

// Reduces one block of floats, by Sum or Avg, whatever it contains.
void reduce_block(const Numbers& numbers, int sources, const void* const* blocks, void* out);

void quantise_block(const Numbers& numbers, const void* block, unsigned exponent,
                    std::int32_t* out);
void dequantise_block(const Numbers& numbers, const std::int32_t* sums, unsigned exponent,
                      void* out);

}  // namespace afflux::codec
