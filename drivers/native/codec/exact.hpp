// Exact mode in packets, with 13 words for each element (protocol, section 8.4).
#pragma once

#include "codec/numbers.hpp"
#include "codec/types.hpp"

namespace afflux::codec {

// Writes the limbs of each element, least first and with its sign, then its class count.
// `words` has wire::kExactWords * count integers.
void exact_encode(Dtype dtype, const void* elements, std::size_t count, std::int32_t* words);

// Writes the values of summed words, rounded once: for Avg, of the sum divided by numbers.ranks.
void exact_decode(const Numbers& numbers, const std::int32_t* sums, std::size_t count, void* out);

}  // namespace afflux::codec
