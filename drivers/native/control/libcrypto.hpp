// HMAC-SHA256 by OpenSSL's libcrypto, which is opened when it is first needed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace afflux::control {

using Digest = std::array<std::uint8_t, 32>;

// Throws NotAuthenticated if this machine has no libcrypto.
Digest hmac_sha256(std::string_view key, std::string_view text);

// Whether two texts are equal, in a time that does not depend on where they differ.
bool equal_in_constant_time(std::string_view one, std::string_view other);

// Random octets of the kernel.
void fill_random(void* out, std::size_t bytes);

}  // namespace afflux::control
