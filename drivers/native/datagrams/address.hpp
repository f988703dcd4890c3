// Where a datagram comes from or goes to, in the form in which the kernel takes it.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

namespace afflux::datagrams {

enum class Family { Ipv4, Ipv6 };

// Of either family.
class Address {
  public:
    // Of no host: for datagrams on a connected socket.
    Address() = default;

    // IPv4, first octet of the host uppermost.
    Address(std::uint32_t host, std::uint16_t port) {
        place_.ipv4.sin_family = AF_INET;
        place_.ipv4.sin_addr.s_addr = htonl(host);
        place_.ipv4.sin_port = htons(port);
    }

    // IPv6. The zone is the number of the interface that leads to a link-local address, else 0.
    Address(const std::array<std::uint8_t, 16>& host, std::uint32_t zone, std::uint16_t port) {
        place_.ipv6.sin6_family = AF_INET6;
        std::memcpy(&place_.ipv6.sin6_addr, host.data(), host.size());
        place_.ipv6.sin6_scope_id = zone;
        place_.ipv6.sin6_port = htons(port);
    }

    // Reads a number such as 10.0.0.1, fd00::1 or fe80::1%eth0; names are not resolved. Throws
    // std::invalid_argument if it is none.
    static Address parse(const std::string& host, std::uint16_t port);

    bool is_of_no_host() const { return family_number() == AF_UNSPEC; }
    bool is_ipv6() const { return family_number() == AF_INET6; }
    Family family() const { return is_ipv6() ? Family::Ipv6 : Family::Ipv4; }

    // Of IPv4.
    std::uint32_t host() const { return ntohl(place_.ipv4.sin_addr.s_addr); }
    // Of IPv6.
    std::array<std::uint8_t, 16> octets() const {
        std::array<std::uint8_t, 16> octets;
        std::memcpy(octets.data(), &place_.ipv6.sin6_addr, octets.size());
        return octets;
    }
    std::uint32_t zone() const { return place_.ipv6.sin6_scope_id; }
    // Of both, which have it at the same place.
    std::uint16_t port() const { return ntohs(place_.ipv4.sin_port); }

    // The host as `parse` reads it.
    std::string text() const;

    bool operator==(const Address& other) const {
        if (family_number() != other.family_number()) return false;
        if (place_.ipv4.sin_port != other.place_.ipv4.sin_port) return false;
        if (!is_ipv6()) return place_.ipv4.sin_addr.s_addr == other.place_.ipv4.sin_addr.s_addr;
        return zone() == other.zone() &&
               std::memcmp(&place_.ipv6.sin6_addr, &other.place_.ipv6.sin6_addr, 16) == 0;
    }

    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&place_); }
    // The kernel writes at most kCapacity bytes there.
    sockaddr* put() { return reinterpret_cast<sockaddr*>(&place_); }
    socklen_t bytes() const {
        if (is_of_no_host()) return 0;
        return is_ipv6() ? sizeof place_.ipv6 : sizeof place_.ipv4;
    }

    static constexpr socklen_t kCapacity = sizeof(sockaddr_in6);

  private:
    // Both begin with it, and with the port.
    sa_family_t family_number() const { return place_.ipv4.sin_family; }

    union Place {
        sockaddr_in6 ipv6{};  // the longer one: all octets begin as 0
        sockaddr_in ipv4;
    };
    Place place_;
};

}  // namespace afflux::datagrams
