// Verilator's writer of FST packs with liblz4, whose header is a system package that may be missing.
// This is in its place: the two functions that the writer calls, which write blocks of the same
// format (LZ4 Block Format 1.6.3), so that any reader of FST reads them.

#pragma once

#include <cstdint>
#include <cstring>
#include <memory>

namespace afflux_lz4 {

constexpr int MATCH_LEAST = 4;
constexpr int REACH = 65535;         // of an offset
constexpr int LITERALS_AT_END = 5;   // the format's two rules of a block's end
constexpr int MATCH_BEFORE_END = 12;
constexpr int HASH_BITS = 13;

inline uint32_t word_at(const char* data) {
    uint32_t word;
    std::memcpy(&word, data, sizeof word);
    return word;
}

inline char* put_length(char* out, int beyond) {
    for (; beyond >= 255; beyond -= 255) *out++ = static_cast<char>(255);
    *out++ = static_cast<char>(beyond);
    return out;
}

// A sequence: literals, and then a match, unless its length is 0.
inline char* put_sequence(char* out, const char* literals, int count, int offset, int length) {
    const int more = length ? length - MATCH_LEAST : 0;
    *out++ = static_cast<char>((count < 15 ? count : 15) << 4 | (more < 15 ? more : 15));
    if (count >= 15) out = put_length(out, count - 15);
    std::memcpy(out, literals, static_cast<size_t>(count));
    out += count;
    if (!length) return out;
    *out++ = static_cast<char>(offset);
    *out++ = static_cast<char>(offset >> 8);
    return more >= 15 ? put_length(out, more - 15) : out;
}

}  // namespace afflux_lz4

// The most bytes that a block of `size` bytes has.
inline int LZ4_compressBound(int size) { return size + size / 255 + 16; }

// Return the bytes written, or 0 if `capacity` is less than the bound.
inline int LZ4_compress_default(const char* source, char* target, int size, int capacity) {
    using namespace afflux_lz4;
    if (capacity < LZ4_compressBound(size)) return 0;
    // Where a word with this hash was seen last, plus one.
    const auto seen = std::make_unique<int[]>(size_t{1} << HASH_BITS);
    char* out = target;
    int literals = 0;
    for (int at = 0; at + MATCH_BEFORE_END <= size;) {
        const uint32_t word = word_at(source + at);
        int& place = seen[word * 2654435761u >> (32 - HASH_BITS)];
        const int before = place - 1;
        place = at + 1;
        if (before < 0 || at - before > REACH || word_at(source + before) != word) {
            ++at;
            continue;
        }
        int length = MATCH_LEAST;
        while (at + length < size - LITERALS_AT_END
               && source[before + length] == source[at + length]) {
            ++length;
        }
        out = put_sequence(out, source + literals, at - literals, at - before, length);
        at += length;
        literals = at;
    }
    out = put_sequence(out, source + literals, size - literals, 0, 0);
    return static_cast<int>(out - target);
}
