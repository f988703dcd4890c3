// Octets as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace afflux::control {

inline constexpr std::string_view kHexadecimalDigits = "0123456789abcdef";

template <typename Octets>
std::string hexadecimal(const Octets& octets) {
    std::string text;
    for (const auto each : octets) {
        text += kHexadecimalDigits[static_cast<std::uint8_t>(each) >> 4];
        text += kHexadecimalDigits[static_cast<std::uint8_t>(each) & 15];
    }
    return text;
}

// Of a text that has lower-case digits only.
inline std::string octets_of(std::string_view digits) {
    std::string octets;
    for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
        octets += static_cast<char>(kHexadecimalDigits.find(digits[i]) << 4 |
                                    kHexadecimalDigits.find(digits[i + 1]));
    }
    return octets;
}

inline bool is_hexadecimal(std::string_view text, std::size_t digits) {
    return text.size() == digits && text.find_first_not_of(kHexadecimalDigits) == text.npos;
}

}  // namespace afflux::control
