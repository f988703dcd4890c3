#include "selection/scan.hpp"

#include <algorithm>
#include <bit>

#include "selection/least.hpp"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace afflux::selection {
namespace {

// Ahead of what is looked at: processors fetch on their own only up to the end of a page.
constexpr std::size_t kPrefetchBytes = 8192;
constexpr std::size_t kCacheLineBytes = 64;

// Bit i: whether element i of a chunk reaches the bound.
using Mask = std::uint64_t;
static_assert(kScanChunk == 64);

void prefetch_chunk(const float* elements) {
    const char* const ahead = reinterpret_cast<const char*>(elements) + kPrefetchBytes;
    for (std::size_t byte = 0; byte < kScanChunk * sizeof(float); byte += kCacheLineBytes) {
        __builtin_prefetch(ahead + byte);
    }
}

Mask mask_of(const float* elements, std::size_t size, Magnitude bound) {
    Mask mask = 0;
    for (std::size_t i = 0; i < size; ++i) {
        mask |= static_cast<Mask>(magnitude_of(elements[i]) >= bound) << i;
    }
    return mask;
}

Mask chunk_mask(const float* elements, Magnitude bound) {
    Magnitude most = 0;
    for (std::size_t i = 0; i < kScanChunk; ++i) {
        most = std::max(most, magnitude_of(elements[i]));
    }
    return most >= bound ? mask_of(elements, kScanChunk, bound) : 0;
}

// Where a scan has come to.
struct Position {
    std::size_t first;
    std::size_t found;
};

void put(Mask mask, const float* elements, Position* at, Found* found) {
    for (; mask != 0; mask &= mask - 1) {
        const std::size_t place = at->first + static_cast<std::size_t>(std::countr_zero(mask));
        found->magnitudes[at->found] = magnitude_of(elements[place]);
        found->places[at->found] = static_cast<std::int64_t>(place);
        ++at->found;
    }
}

// Scans whole chunks. `found` has room for `room` elements.
using ScanChunks = void (*)(std::span<const float> elements, Magnitude bound, std::size_t room,
                            Position* at, Found* found);

void scan_chunks(std::span<const float> elements, Magnitude bound, std::size_t room, Position* at,
                 Found* found) {
    for (; at->first + kScanChunk <= elements.size() && at->found + kScanChunk <= room;
         at->first += kScanChunk) {
        prefetch_chunk(&elements[at->first]);
        put(chunk_mask(&elements[at->first], bound), elements.data(), at, found);
    }
}

#if defined(__x86_64__)

__attribute__((target("avx2"))) void scan_chunks_avx2(std::span<const float> elements,
                                                      Magnitude bound, std::size_t room,
                                                      Position* at, Found* found) {
    constexpr std::size_t kLanes = 8;
    constexpr std::size_t kVectors = kScanChunk / kLanes;
    const __m256i without_sign = _mm256_set1_epi32(kLargestMagnitude);
    const __m256i below = _mm256_set1_epi32(bound - 1);
    for (; at->first + kScanChunk <= elements.size() && at->found + kScanChunk <= room;
         at->first += kScanChunk) {
        const float* const chunk = &elements[at->first];
        prefetch_chunk(chunk);
        __m256i magnitudes[kVectors];
        __m256i most = _mm256_setzero_si256();
        for (std::size_t i = 0; i < kVectors; ++i) {
            const auto* const from = reinterpret_cast<const __m256i*>(chunk + i * kLanes);
            magnitudes[i] = _mm256_and_si256(_mm256_loadu_si256(from), without_sign);
            most = _mm256_max_epi32(most, magnitudes[i]);
        }
        if (_mm256_movemask_epi8(_mm256_cmpgt_epi32(most, below)) == 0) continue;
        Mask mask = 0;
        for (std::size_t i = 0; i < kVectors; ++i) {
            const __m256i reaches = _mm256_cmpgt_epi32(magnitudes[i], below);
            const int bits = _mm256_movemask_ps(_mm256_castsi256_ps(reaches));
            mask |= static_cast<Mask>(static_cast<unsigned>(bits)) << (i * kLanes);
        }
        put(mask, elements.data(), at, found);
    }
}

ScanChunks best() {
    return __builtin_cpu_supports("avx2") ? scan_chunks_avx2 : scan_chunks;
}

#else

ScanChunks best() {
    return scan_chunks;
}

#endif

ScanChunks scan_whole_chunks = best();

}  // namespace

Magnitude Found::keep_largest(std::size_t count) {
    const Least least = least_of(magnitudes, count);
    std::size_t equal = least.equal;
    std::size_t kept = 0;
    // No branches: what is kept is random.
    for (std::size_t i = 0; i < size(); ++i) {
        const Magnitude magnitude = magnitudes[i];
        const bool is_equal = magnitude == least.magnitude;
        magnitudes[kept] = magnitude;
        places[kept] = places[i];
        kept += magnitude > least.magnitude || (is_equal && equal > 0);
        equal -= is_equal && equal > 0;
    }
    resize(kept);
    return least.magnitude;
}

std::size_t scan(std::span<const float> elements, std::size_t first, Magnitude bound,
                 std::size_t room, Found* found) {
    Position at{first, found->size()};
    found->resize(std::max(room, at.found));
    scan_whole_chunks(elements, bound, room, &at, found);
    const std::size_t rest = elements.size() - at.first;
    if (rest < kScanChunk && at.found + kScanChunk <= room) {
        put(mask_of(elements.data() + at.first, rest, bound), elements.data(), &at, found);
        at.first = elements.size();
    }
    found->resize(at.found);
    return at.first;
}

void scan_portably(bool portably) {
    scan_whole_chunks = portably ? scan_chunks : best();
}

}  // namespace afflux::selection
