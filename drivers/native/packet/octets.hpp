// Loads and stores of numbers in either byte order, at any address.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace afflux::packet {

static_assert(std::endian::native == std::endian::little, "Afflux's fields are copied as they are");

template <typename Number>
Number load(const std::uint8_t* at) {
    Number value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

template <typename Number>
void store(std::uint8_t* at, Number value) {
    std::memcpy(at, &value, sizeof value);
}

inline std::uint16_t load_big_16(const std::uint8_t* at) {
    return static_cast<std::uint16_t>(at[0] << 8 | at[1]);
}

inline std::uint32_t load_big_32(const std::uint8_t* at) {
    return static_cast<std::uint32_t>(load_big_16(at)) << 16 | load_big_16(at + 2);
}

inline void store_big_16(std::uint8_t* at, std::uint16_t value) {
    at[0] = static_cast<std::uint8_t>(value >> 8);
    at[1] = static_cast<std::uint8_t>(value);
}

inline void store_big_32(std::uint8_t* at, std::uint32_t value) {
    store_big_16(at, static_cast<std::uint16_t>(value >> 16));
    store_big_16(at + 2, static_cast<std::uint16_t>(value));
}

// Adds the ones' complement sum of RFC 1071 to `sum`. An odd last octet counts as a high one.
inline std::uint64_t add_words(std::uint64_t sum, const std::uint8_t* at, std::size_t bytes) {
    for (; bytes >= 2; at += 2, bytes -= 2) sum += load_big_16(at);
    return bytes != 0 ? sum + (static_cast<std::uint64_t>(*at) << 8) : sum;
}

inline std::uint16_t fold(std::uint64_t sum) {
    while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
    return static_cast<std::uint16_t>(sum);
}

}  // namespace afflux::packet
