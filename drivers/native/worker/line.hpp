// A worker's way to one aggregator: its sockets, and what is being said on them.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "worker/dialogue.hpp"
#include "worker/loss_switch.hpp"
#include "worker/session.hpp"
#include "worker/udp_socket.hpp"

namespace afflux::worker {

// How many datagrams a system call takes at most.
inline constexpr std::size_t kBatch = 64;

// Where datagrams that have come are put, one after the other by every line of a thread.
using ReceiveBuffers = std::vector<packet::PacketBuffer>;

class Line : private PacketSink {
  public:
    // The session must live as long; so must `loss`, which may be null. Throws std::system_error if
    // the aggregator cannot be reached.
    Line(const Address& aggregator, Session& session, LossSwitch* loss);

    // Takes what the aggregator sends to a multicast group, too. Throws std::system_error if the
    // interface that leads to the aggregator cannot join it.
    void join_group(const Address& group);

    // Closes the sockets. May be called more than once.
    void close();

    // Own address and port on the way to the aggregator.
    Address own_address() const { return socket_.own_address(); }

    // Whether the aggregator's host has reported that nobody listens on the port.
    bool refused() const { return refused_; }

    // Bytes of a packet that was longer than the path's MTU; 0 if there was none.
    std::size_t too_long() const { return too_long_; }

    // Bytes of the longest IPv4 packet on the path, as far as is known.
    std::size_t mtu() const { return socket_.mtu(); }

    // Begins a dialogue, which must live until it is over or another one begins: sends its first
    // packets.
    void open(Dialogue& dialogue);

    // Whether nothing is awaited.
    bool idle() const { return dialogue_ == nullptr || dialogue_->done(); }

    // When the dialogue's timer runs out, in seconds of the monotonic clock; infinite if idle.
    double next_timer() const;

    // Feeds the dialogue what has come, up to a batch of each socket; returns whether there may be
    // more. Throws what the dialogue does.
    bool receive(ReceiveBuffers& buffers);

    // Sends what is due by now.
    void expire(double now);

    // The file numbers of the sockets; -1 for one that is not there.
    std::array<int, 2> numbers() const;

  private:
    void send(Octets datagram) override;
    void flush();
    bool receive_from(const UdpSocket& socket, ReceiveBuffers& buffers);
    bool is_foreign(std::uint32_t host, std::uint16_t port) const;

    Address aggregator_;
    UdpSocket socket_;
    std::optional<UdpSocket> group_;
    Session& session_;
    LossSwitch* loss_;
    Dialogue* dialogue_ = nullptr;
    bool refused_ = false;
    std::size_t too_long_ = 0;
    // Datagrams that wait to be sent with one call.
    std::array<iovec, kBatch> vectors_;
    std::size_t size_ = 0;
};

// Seconds of the monotonic clock.
double monotonic_now();

}  // namespace afflux::worker
