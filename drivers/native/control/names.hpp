// Addresses of hosts by name, within a time: a name server that does not answer holds nobody up.
#pragma once

#include <netdb.h>

#include <cstdint>
#include <memory>
#include <string>

namespace afflux::control {

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

// The addresses for a type of sockets, such as SOCK_STREAM. Throws Unreachable if there are none,
// or if they are not known when the deadline passes, in seconds of the monotonic clock.
Addresses resolve(const std::string& host, std::uint16_t port, int type, double deadline);

}  // namespace afflux::control
