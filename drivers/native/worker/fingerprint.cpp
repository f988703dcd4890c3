#include "worker/fingerprint.hpp"

#include <array>
#include <string>

namespace afflux::worker {
namespace {

constexpr std::array<std::uint32_t, 256> table() {
    std::array<std::uint32_t, 256> made{};
    for (std::uint32_t octet = 0; octet < made.size(); ++octet) {
        std::uint32_t value = octet;
        for (int bit = 0; bit < 8; ++bit) {
            value = (value & 1) != 0 ? value >> 1 ^ 0xEDB8'8320 : value >> 1;
        }
        made[octet] = value;
    }
    return made;
}

std::uint32_t add(std::uint32_t crc, std::string_view text) {
    static constexpr auto kTable = table();
    for (const char each : text)
        crc = crc >> 8 ^ kTable[(crc ^ static_cast<unsigned char>(each)) & 255];
    return crc;
}

}  // namespace

std::uint32_t crc32(std::string_view text) {
    return ~add(~std::uint32_t{0}, text);
}

std::uint32_t fingerprint(std::uint64_t number, std::string_view rest) {
    return ~add(add(~std::uint32_t{0}, std::to_string(number)), rest);
}

}  // namespace afflux::worker
