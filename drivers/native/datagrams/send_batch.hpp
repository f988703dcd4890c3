// Datagrams that wait to be sent with few calls.
//
// Those of equal length to one destination are joined, up to 64 KB, into one message that the
// kernel or the network card cuts apart (UDP_SEGMENT); all messages go out with one call. Order is
// kept among datagrams of equal length to one destination, and not beyond: UDP promises none.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "datagrams/address.hpp"
#include "datagrams/traffic.hpp"
#include "datagrams/udp_socket.hpp"

namespace afflux::datagrams {

// A part of a datagram, gathered when it is sent. A datagram has at most 64.
using Part = std::span<const std::uint8_t>;

class SendBatch {
  public:
    // `segment`: join datagrams if the kernel can. The socket must live as long.
    explicit SendBatch(const UdpSocket& socket, bool segment = true);

    // Appends a datagram that consists of the parts, which must stay as they are until it has been
    // sent. No address: to the peer of a connected socket. Only datagrams of one range are joined.
    void add(const Address& to, std::span<const Part> parts, unsigned range = 0);
    void add(const Address& to, std::initializer_list<Part> parts, unsigned range = 0) {
        add(to, std::span<const Part>(parts.begin(), parts.size()), range);
    }

    // Sends everything, or as much as the socket's buffer takes. Returns whether nothing is left;
    // else the next call goes on when the socket can be written to. A datagram that the kernel
    // refuses is lost, as on a network. `confirm`: the peer has been heard just now, so the kernel
    // need not ask its neighbour by ARP whether it is still there (MSG_CONFIRM).
    bool flush(bool confirm = false);

    bool empty() const { return used_ == 0; }

    // Forgets what has not been sent.
    void clear() { used_ = 0; }

    // Whether datagrams are joined: wanted, possible, and never refused so far.
    bool segments() const { return segments_; }

    // Whether a peer's host has reported that nobody listens on the port.
    bool refused() const { return refused_; }

    // Bytes of a datagram that was longer than the path carries; 0 if there was none.
    std::size_t too_long() const { return too_long_; }

    const Traffic& traffic() const { return traffic_; }

  private:
    // The unit that the kernel takes at once: datagrams of one length to one destination.
    struct Message {
        Address to;
        std::size_t segment = 0;  // bytes of each datagram
        std::size_t datagrams = 0;
        unsigned range = 0;
        bool apart = false;  // made of one that the kernel did not cut
        std::vector<iovec> parts;

        bool takes(const Address& address, std::size_t bytes, unsigned number) const;
    };

    Message& message_for(const Address& to, std::size_t bytes, unsigned range);
    Message& new_message();
    void prepare(std::size_t first, std::size_t count);
    void count_sent(std::size_t first, std::size_t count);
    // Looks at errno after message number `at` was refused. Returns where to go on.
    std::size_t after_error(std::size_t at);
    // Makes a message of each datagram. `for_good`: if they can be sent, the kernel cannot cut, and
    // nothing is joined any more.
    void cut_apart(std::size_t at, bool for_good);
    void drop_sent(std::size_t count);

    static constexpr std::size_t kMessages = 64;  // of a call

    struct alignas(cmsghdr) Control {
        std::array<char, CMSG_SPACE(sizeof(std::uint16_t))> bytes;
    };

    const UdpSocket& socket_;
    bool segments_;
    bool refused_ = false;
    bool tried_again_ = false;  // after EMSGSIZE
    std::size_t too_long_ = 0;
    // Of these the first used_ hold something; the others keep their memory.
    std::vector<Message> messages_;
    std::size_t used_ = 0;
    std::size_t latest_ = 0;  // message that the latest datagram was added to
    std::array<mmsghdr, kMessages> headers_;
    std::array<Control, kMessages> controls_;
    Traffic traffic_;
};

}  // namespace afflux::datagrams
