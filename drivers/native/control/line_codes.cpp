#include "control/line_codes.hpp"

#include <array>

#include "control/hexadecimal.hpp"
#include "control/libcrypto.hpp"

namespace afflux::control {
namespace {

constexpr std::size_t kNonceBytes = 16;
constexpr std::size_t kCodeDigits = 64;
constexpr std::string_view kClient = "afflux control 1: client to server";
constexpr std::string_view kServer = "afflux control 1: server to client";

std::string key_of(std::string_view secret, std::string_view direction, std::string_view nonces) {
    std::string text(direction);
    text += nonces;
    const Digest digest = hmac_sha256(secret, text);
    return {digest.begin(), digest.end()};
}

}  // namespace

std::string LineCode::code(std::string_view text) {
    std::string numbered;
    for (int shift = 56; shift >= 0; shift -= 8) numbered += static_cast<char>(number_ >> shift);
    ++number_;
    numbered += text;
    return hexadecimal(hmac_sha256(key_, numbered));
}

std::string LineCode::sign(std::string_view text) {
    return code(text) + " " + std::string(text);
}

std::optional<std::string> LineCode::check(std::string_view line) {
    const std::string_view front = line.substr(0, kCodeDigits + 1);
    const std::string_view text = line.substr(front.size());
    // In constant time: a stranger must not find the code digit by digit.
    if (!equal_in_constant_time(front, code(text) + " ")) return std::nullopt;
    return std::string(text);
}

LineCodes connection_codes(std::string_view secret, std::string_view client_nonce,
                           std::string_view server_nonce) {
    const std::string nonces = octets_of(client_nonce) + octets_of(server_nonce);
    return {LineCode(key_of(secret, kClient, nonces)), LineCode(key_of(secret, kServer, nonces))};
}

std::string new_nonce() {
    std::array<std::uint8_t, kNonceBytes> octets;
    fill_random(octets.data(), octets.size());
    return hexadecimal(octets);
}

bool is_nonce(std::string_view text) {
    return is_hexadecimal(text, 2 * kNonceBytes);
}

}  // namespace afflux::control
