// Where a datagram comes from or goes to, in the form in which the kernel takes it.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

namespace afflux::datagrams {

// IPv4 so far. The callers see hosts and ports only, so another family will fit in here.
class Address {
  public:
    // Of no host: for datagrams on a connected socket.
    Address() = default;

    // First octet of the host uppermost.
    Address(std::uint32_t host, std::uint16_t port) {
        ipv4_.sin_family = AF_INET;
        ipv4_.sin_addr.s_addr = htonl(host);
        ipv4_.sin_port = htons(port);
    }

    bool is_of_no_host() const { return ipv4_.sin_family == AF_UNSPEC; }
    std::uint32_t host() const { return ntohl(ipv4_.sin_addr.s_addr); }
    std::uint16_t port() const { return ntohs(ipv4_.sin_port); }

    bool operator==(const Address& other) const {
        return ipv4_.sin_family == other.ipv4_.sin_family &&
               ipv4_.sin_port == other.ipv4_.sin_port &&
               ipv4_.sin_addr.s_addr == other.ipv4_.sin_addr.s_addr;
    }

    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&ipv4_); }
    // The kernel writes at most kCapacity bytes there.
    sockaddr* put() { return reinterpret_cast<sockaddr*>(&ipv4_); }
    socklen_t bytes() const { return is_of_no_host() ? 0 : sizeof ipv4_; }

    static constexpr socklen_t kCapacity = sizeof(sockaddr_in);

  private:
    sockaddr_in ipv4_{};
};

}  // namespace afflux::datagrams
