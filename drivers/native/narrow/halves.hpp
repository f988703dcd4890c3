// Elements in 16 bits of floating point: what they are rounded to, and what that leaves.
#pragma once

#include <cstdint>
#include <span>

namespace afflux::narrow {

// Bits of a float16, or of a bfloat16, in its own order.
using Half = std::uint16_t;

enum class HalfType : std::uint8_t { Float16, Bfloat16 };

// Writes elements rounded to nearest, ties to even, and not beyond the limit, which is a number of
// the type. Returns the float32 bits of the largest magnitude; where it is not finite, `out` is of
// no use.
std::int32_t to_halves(std::span<const float> elements, HalfType type, float limit,
                       std::span<Half> out);

// Writes a rank's share of the sums, which are finite; and subtracts from the own elements what
// `to_halves` has made of them. The sums may be the second half of the averages' memory.
void from_halves(std::span<const Half> sums, HalfType type, float limit, int ranks,
                 std::span<float> elements, std::span<float> averages);

}  // namespace afflux::narrow
