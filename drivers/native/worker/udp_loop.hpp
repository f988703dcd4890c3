// A worker's sockets, driven until a dialogue is over: datagrams in batches, and the clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "worker/dialogue.hpp"
#include "worker/loss_switch.hpp"
#include "worker/session.hpp"
#include "worker/udp_socket.hpp"

namespace afflux::worker {

// Datagrams to and from one aggregator.
class UdpLoop {
  public:
    // `loss` may be null; it must live as long. Throws std::system_error if the aggregator cannot
    // be reached.
    UdpLoop(const Address& aggregator, LossSwitch* loss);

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

    // Opens the dialogue: sends its first packets.
    void open(Session& session, Dialogue& dialogue);

    // Feeds the dialogue, which has been opened, until it is over, a packet was too long, or the
    // time of the monotonic clock, in seconds, has come. Throws what the dialogue does.
    void run(Session& session, Dialogue& dialogue, double until);

  private:
    class Batch;

    // Takes what has come, up to a batch; returns whether there may be more.
    bool receive(const UdpSocket& socket, Session& session, Dialogue& dialogue, PacketSink& out);
    bool is_foreign(std::uint32_t host, std::uint16_t port) const;
    void wait(double seconds) const;

    Address aggregator_;
    UdpSocket socket_;
    std::optional<UdpSocket> group_;
    LossSwitch* loss_;
    bool refused_ = false;
    std::size_t too_long_ = 0;
    std::vector<packet::PacketBuffer> buffers_;
};

}  // namespace afflux::worker
