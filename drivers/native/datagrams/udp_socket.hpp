// A UDP socket that never blocks.
#pragma once

#include <cstddef>
#include <utility>

#include "datagrams/address.hpp"

namespace afflux::datagrams {

class UdpSocket {
  public:
    // Throws std::system_error if there can be none.
    UdpSocket();

    // Takes over the file number of an open socket, which it makes non-blocking.
    explicit UdpSocket(int number);

    ~UdpSocket() { close(); }
    UdpSocket(UdpSocket&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    UdpSocket& operator=(UdpSocket&&) = delete;

    // May be called more than once. What is sent afterwards is lost.
    void close();

    // These throw std::system_error if the kernel refuses.
    void bind(const Address& own);
    void connect(const Address& peer);
    Address own_address() const;
    void set(int level, int option, const char* what, int value);

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
};

}  // namespace afflux::datagrams
