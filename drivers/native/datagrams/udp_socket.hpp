// A UDP socket that never blocks.
#pragma once

#include <cstddef>
#include <utility>

#include "datagrams/address.hpp"

namespace afflux::datagrams {

// The charge of a datagram of so many bytes on a receive buffer, if it comes alone: a power of two
// that holds it with room for headers and for the kernel's notes, and the description of it. Seen
// on loopback and veth, Linux 6.18: 2,304 for 1,366 bytes, 8,456 for 4,182. Datagrams that come
// joined are charged little more than their bytes, those of some network cards 4 KB or more.
std::size_t charge(std::size_t datagram_bytes);

// How much of a receive buffer can be counted on. The kernel gives back what has been read when it
// comes to a quarter of the buffer.
std::size_t usable(std::size_t buffer_bytes);

class UdpSocket {
  public:
    // Throws std::system_error if there can be none.
    explicit UdpSocket(Family family = Family::Ipv4);

    // Takes over the file number of an open socket, which it makes non-blocking.
    explicit UdpSocket(int number);

    ~UdpSocket() { close(); }
    UdpSocket(UdpSocket&& other) noexcept
        : number_(std::exchange(other.number_, -1)), family_(other.family_) {}
    UdpSocket& operator=(UdpSocket&&) = delete;

    // May be called more than once. Datagrams sent afterwards are lost.
    void close();

    // These throw std::system_error if the kernel refuses.
    void bind(const Address& own);
    void connect(const Address& peer);
    Address own_address() const;
    void set(int level, int option, const char* what, int value);
    // A datagram longer than the path's MTU, as far as that is known, is refused and not cut.
    void never_fragment();

    // Whether it sends to one peer only.
    bool is_connected() const;

    // Asks for so many bytes of buffer in each direction, beyond the system's limit if privileged.
    // Returns what the receive buffer may charge in all, which may be less.
    std::size_t enlarge(std::size_t bytes);

    // Bytes of the longest IP packet that the path to the peer is known to carry; 0 if unknown.
    std::size_t mtu() const;

    // Makes the kernel join datagrams of one sender and of equal length as they arrive (UDP_GRO).
    // Returns whether it can.
    bool coalesce();

    // Whether the kernel can cut one buffer into datagrams (UDP_SEGMENT).
    bool can_segment() const;

    // The file number.
    int number() const { return number_; }

  private:
    int number_;
    Family family_;
};

}  // namespace afflux::datagrams
