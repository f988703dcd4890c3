// Two terms of a block of float32 in 40 bits for each element, where these hold them.
#pragma once

#include <cstddef>

#include "contract/wire.hpp"

namespace afflux::collectives {

// An exponent, in 32 bits, then 64 integers of 40 bits: an element's terms are the integer times
// two to the exponent.
inline constexpr std::size_t kPackedBytes = 4 + wire::kBlockBytes / 4 * 5;

// Returns false, with `out` undefined, if the sums of some terms need more bits, or are what no
// integer is: -0, infinite, or no number.
bool pack_terms(const std::byte* first, const std::byte* second, std::byte* out);
// Makes of them a sum that is rounded, and the rest: -0 if there is none. Returns false for what
// `pack_terms` cannot have made.
bool unpack_terms(const std::byte* from, std::byte* first, std::byte* second);

}  // namespace afflux::collectives
