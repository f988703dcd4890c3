// UDP sockets of a worker. They never block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace afflux::worker {

// IPv4 address, first octet uppermost, and UDP port.
struct Address {
    std::uint32_t host;
    std::uint16_t port;
};

class UdpSocket {
  public:
    // Takes datagrams of `peer` only, and sends to it. Throws std::system_error if there is no
    // route.
    static UdpSocket connected(const Address& peer);

    // Takes what anyone sends to the multicast group, on the interface with this address, as others
    // of this host may, too. Throws std::system_error if the interface has no room for the group.
    static UdpSocket of_group(const Address& group, std::uint32_t interface);

    ~UdpSocket();
    UdpSocket(UdpSocket&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    UdpSocket& operator=(UdpSocket&&) = delete;

    // May be called more than once. What is sent afterwards is lost.
    void close();

    // The file number.
    int number() const { return number_; }

    // Own address and port: those of the interface that leads to the peer.
    Address own_address() const;

    // Bytes of the longest IPv4 packet that the path to the peer is known to carry; 0 if unknown.
    std::size_t mtu() const;

  private:
    UdpSocket();
    void set(int level, int option, const char* what, int value);

    int number_;
};

}  // namespace afflux::worker
