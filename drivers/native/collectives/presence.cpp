#include "collectives/presence.hpp"

#include <algorithm>
#include <cstring>

#include "contract/wire.hpp"

namespace afflux::collectives {
namespace {

using wire::kBlockBytes;

constexpr std::size_t kLine = 64;
// The processor itself fetches ahead within a page only. Fetching beyond the end does no harm.
constexpr std::size_t kAhead = 3072, kAheadOfAll = 8192;

[[gnu::always_inline]] inline std::uint64_t first_word(const std::byte* block) {
    std::uint64_t word;
    std::memcpy(&word, block, sizeof word);
    return word;
}

[[gnu::always_inline]] inline std::uint64_t all_words(const std::byte* block) {
    std::uint64_t words[kBlockBytes / sizeof(std::uint64_t)], bits = 0;
    std::memcpy(words, block, sizeof words);
    for (const std::uint64_t word : words) bits |= word;
    return bits;
}

// Whether a block has a bit set. Of most blocks the first word tells.
[[gnu::always_inline]] inline bool any(const std::byte* block) {
    return first_word(block) || all_words(block);
}

[[gnu::always_inline]] inline void fetch(const std::byte* from) {
    for (std::size_t at = 0; at < kBlockBytes; at += kLine) __builtin_prefetch(from + at);
}

// Of whole blocks; they are copied unless `out` is null.
[[gnu::always_inline]] inline void take(const std::byte* from, std::size_t blocks, std::byte* out,
                                        std::uint8_t* present) {
    for (std::size_t b = 0; b < blocks; ++b) {
        const std::size_t at = b * kBlockBytes;
        fetch(from + at + kAhead);
        present[b] = any(from + at);
        if (present[b] && out) std::memcpy(out + at, from + at, kBlockBytes);
    }
}

[[gnu::always_inline]] inline void find(int sources, const void* const* elements,
                                        std::size_t blocks, std::uint8_t* present) {
    const auto at = [&](int source, std::size_t block) {
        return static_cast<const std::byte*>(elements[source]) + block * kBlockBytes;
    };
    const std::size_t ahead = kAheadOfAll / static_cast<std::size_t>(sources);
    for (std::size_t b = 0; b < blocks; ++b) {
        std::uint64_t bits = first_word(at(0, b));
        for (int r = 0; r < sources && !bits; ++r) {
            fetch(at(r, b) + ahead);
            bits = all_words(at(r, b));
        }
        present[b] = bits != 0;
    }
}

struct Loops {
    void (*take)(const std::byte*, std::size_t, std::byte*, std::uint8_t*);
    void (*find)(int, const void* const*, std::size_t, std::uint8_t*);
};

void take_default(const std::byte* from, std::size_t blocks, std::byte* out,
                  std::uint8_t* present) {
    take(from, blocks, out, present);
}

void find_default(int sources, const void* const* elements, std::size_t blocks,
                  std::uint8_t* present) {
    find(sources, elements, blocks, present);
}

constexpr Loops kDefault{take_default, find_default};

#if defined(__x86_64__)
[[gnu::target("avx2")]] void take_avx2(const std::byte* from, std::size_t blocks, std::byte* out,
                                       std::uint8_t* present) {
    take(from, blocks, out, present);
}

[[gnu::target("avx2")]] void find_avx2(int sources, const void* const* elements, std::size_t blocks,
                                       std::uint8_t* present) {
    find(sources, elements, blocks, present);
}

[[gnu::target("avx512f,avx512bw,prefer-vector-width=512")]] void take_avx512(
    const std::byte* from, std::size_t blocks, std::byte* out, std::uint8_t* present) {
    take(from, blocks, out, present);
}

[[gnu::target("avx512f,avx512bw,prefer-vector-width=512")]] void find_avx512(
    int sources, const void* const* elements, std::size_t blocks, std::uint8_t* present) {
    find(sources, elements, blocks, present);
}

constexpr Loops kAvx2{take_avx2, find_avx2}, kAvx512{take_avx512, find_avx512};
#endif

const Loops& loops() {
#if defined(__x86_64__)
    static const Loops& best = __builtin_cpu_supports("avx512bw") ? kAvx512
                               : __builtin_cpu_supports("avx2")   ? kAvx2
                                                                  : kDefault;
    return best;
#else
    return kDefault;
#endif
}

std::size_t take_all(const std::byte* from, std::size_t bytes, std::byte* out,
                     std::uint8_t* present) {
    const std::size_t whole = bytes / kBlockBytes, rest = bytes % kBlockBytes;
    loops().take(from, whole, out, present);
    if (rest) {
        std::byte last[kBlockBytes] = {};
        std::memcpy(last, from + whole * kBlockBytes, rest);
        loops().take(last, 1, out ? out + whole * kBlockBytes : nullptr, present + whole);
    }
    const std::size_t blocks = whole + (rest != 0);
    return blocks - static_cast<std::size_t>(std::count(present, present + blocks, 0));
}

}  // namespace

std::size_t find_present(const std::byte* from, std::size_t bytes, std::uint8_t* present) {
    return take_all(from, bytes, nullptr, present);
}

std::size_t copy_present(const std::byte* from, std::size_t bytes, std::byte* out,
                         std::uint8_t* present) {
    return take_all(from, bytes, out, present);
}

void find_present_anywhere(int sources, const void* const* elements, std::size_t blocks,
                           std::uint8_t* present) {
    loops().find(sources, elements, blocks, present);
}

}  // namespace afflux::collectives
