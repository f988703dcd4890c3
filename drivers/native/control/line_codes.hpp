// Codes that prove that a line is the peer's (protocol, section 10.1).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace afflux::control {

// The codes of the lines of one direction, each in its turn.
class LineCode {
  public:
    explicit LineCode(std::string key) : key_(std::move(key)) {}

    // The next line, without its end, that carries this text.
    std::string sign(std::string_view text);

    // The text of the next line; nothing if it is not the one that the peer sent.
    std::optional<std::string> check(std::string_view line);

  private:
    std::string code(std::string_view text);

    std::string key_;
    std::uint64_t number_ = 0;
};

struct LineCodes {
    LineCode to_server;
    LineCode to_client;
};

// Those of a connection; the nonces are in hexadecimal.
LineCodes connection_codes(std::string_view secret, std::string_view client_nonce,
                           std::string_view server_nonce);

// 16 random bytes, in hexadecimal.
std::string new_nonce();

// Whether a peer's nonce has the form of one.
bool is_nonce(std::string_view text);

}  // namespace afflux::control
