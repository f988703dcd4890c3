// The fields of an operation that ranks compare (protocol, section 9).
#pragma once

#include <cstdint>
#include <string_view>

namespace afflux::worker {

// CRC-32 (that of zlib) of a text.
std::uint32_t crc32(std::string_view text);

// CRC-32 of the operation's number and the rest of its text, such as ":sum:float32:300".
std::uint32_t fingerprint(std::uint64_t number, std::string_view rest);

}  // namespace afflux::worker
