#include "shared/presence.hpp"

#include <algorithm>
#include <cstring>

#include "contract/wire.hpp"

namespace afflux::shared {
namespace {

constexpr std::size_t kLine = 64;
// The processor itself fetches ahead within a page only. Fetching beyond the end does no harm.
constexpr std::size_t kAhead = 3072;

// Whether a block has a bit set. Of most blocks the first word tells.
inline bool any(const std::byte* block) {
    std::uint64_t words[kLine / sizeof(std::uint64_t)];
    std::memcpy(words, block, sizeof words[0]);
    if (words[0]) return true;
    for (std::size_t at = 0; at < wire::kBlockBytes; at += kLine) {
        std::uint64_t bits = 0;
        std::memcpy(words, block + at, sizeof words);
        for (const std::uint64_t word : words) bits |= word;
        if (bits) return true;
    }
    return false;
}

inline void fetch(const std::byte* from) {
    for (std::size_t at = 0; at < wire::kBlockBytes; at += kLine) __builtin_prefetch(from + at);
}

bool any_of_tail(const std::byte* from, std::size_t bytes) {
    return std::any_of(from, from + bytes, [](std::byte byte) { return byte != std::byte{0}; });
}

}  // namespace

std::size_t find_present(const std::byte* from, std::size_t bytes, std::uint8_t* present) {
    const std::size_t whole = bytes / wire::kBlockBytes, rest = bytes % wire::kBlockBytes;
    std::size_t found = 0;
    for (std::size_t b = 0; b < whole; ++b) {
        present[b] = any(from + b * wire::kBlockBytes);
        found += present[b];
    }
    if (rest) {
        present[whole] = any_of_tail(from + whole * wire::kBlockBytes, rest);
        found += present[whole];
    }
    return found;
}

std::size_t copy_present(const std::byte* from, std::size_t bytes, std::byte* out,
                         std::uint8_t* present) {
    const std::size_t whole = bytes / wire::kBlockBytes, rest = bytes % wire::kBlockBytes;
    std::size_t found = 0;
    for (std::size_t b = 0; b < whole; ++b) {
        const std::size_t at = b * wire::kBlockBytes;
        fetch(from + at + kAhead);
        present[b] = any(from + at);
        found += present[b];
        if (present[b]) std::memcpy(out + at, from + at, wire::kBlockBytes);
    }
    if (rest) {
        const std::size_t at = whole * wire::kBlockBytes;
        present[whole] = any_of_tail(from + at, rest);
        if (present[whole]) {
            std::memcpy(out + at, from + at, rest);
            std::memset(out + at + rest, 0, wire::kBlockBytes - rest);
            ++found;
        }
    }
    return found;
}

void find_present_anywhere(int sources, const void* const* elements, std::size_t blocks,
                           std::uint8_t* present) {
    for (std::size_t b = 0; b < blocks; ++b)
        present[b] = std::any_of(elements, elements + sources, [&](const void* source) {
            return any(static_cast<const std::byte*>(source) + b * wire::kBlockBytes);
        });
}

}  // namespace afflux::shared
