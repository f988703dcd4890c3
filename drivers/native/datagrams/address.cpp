#include "datagrams/address.hpp"

#include <netdb.h>

#include <algorithm>
#include <stdexcept>

namespace afflux::datagrams {

Address Address::parse(const std::string& host, std::uint16_t port) {
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST;
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    // It knows the names of interfaces after %, too.
    if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) {
        throw std::invalid_argument(host + " is not an IP address");
    }
    Address address;
    std::memcpy(address.put(), found->ai_addr, std::min(found->ai_addrlen, kCapacity));
    freeaddrinfo(found);
    address.place_.ipv4.sin_port = htons(port);
    return address;
}

std::string Address::text() const {
    std::array<char, NI_MAXHOST> host{};
    const int failed =
        getnameinfo(get(), bytes(), host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
    return failed == 0 ? host.data() : "";
}

}  // namespace afflux::datagrams
