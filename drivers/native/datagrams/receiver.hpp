// Takes datagrams from a socket, many with one call.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "datagrams/address.hpp"
#include "datagrams/traffic.hpp"
#include "datagrams/udp_socket.hpp"

namespace afflux::datagrams {

struct Datagram {
    const Address* source;
    const std::uint8_t* data;  // at any alignment
    std::size_t bytes;
};

class Receiver {
  public:
    // Of a longer datagram than `longest` the first longest + 1 bytes are given, so that it is
    // noticed. `coalesced`: the sockets join datagrams (UdpSocket::coalesce).
    Receiver(std::size_t longest, bool coalesced);

    // Returns what has come, without waiting; valid until the next call. Datagrams that the kernel
    // has joined are taken apart. Send errors, which the kernel reports here, are noted.
    std::span<const Datagram> receive(const UdpSocket& socket);

    // Whether the last call may have left something: then it need not be waited for.
    bool more() const { return more_; }

    // Whether a peer's host has reported that nobody listens on the port.
    bool refused() const { return refused_; }

    const Traffic& traffic() const { return traffic_; }

  private:
    void take_apart(const mmsghdr& message, const Address& source, const std::uint8_t* data);

    // Room for the one control message that is asked for, which holds an int.
    struct alignas(cmsghdr) Control {
        std::array<char, CMSG_SPACE(sizeof(int))> bytes;
    };

    std::size_t longest_;
    std::size_t buffer_bytes_;
    std::unique_ptr<std::uint8_t[]> buffers_;
    std::vector<Address> sources_;
    std::vector<Control> controls_;
    std::vector<iovec> vectors_;
    std::vector<mmsghdr> messages_;
    std::vector<Datagram> datagrams_;
    bool more_ = false;
    bool refused_ = false;
    Traffic traffic_;
};

}  // namespace afflux::datagrams
