// A worker's way to one aggregator: its sockets, and what is being said on them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "datagrams/receiver.hpp"
#include "datagrams/send_batch.hpp"
#include "datagrams/udp_socket.hpp"
#include "worker/dialogue.hpp"
#include "worker/loss_switch.hpp"
#include "worker/session.hpp"

namespace afflux::worker {

using datagrams::Address;

// A whole flight of every slot fits, while the process waits for a processor.
inline constexpr std::size_t kBufferBytes = 8 << 20;

class Line : private PacketSink {
  public:
    // The session must live as long; so must `loss`, which may be null. Asks for so many bytes of
    // socket buffers; of packets whose answers the buffer that it gets does not hold, no more are
    // outstanding at a time. Throws std::system_error if the aggregator cannot be reached.
    Line(const Address& aggregator, Session& session, LossSwitch* loss,
         std::size_t buffer_bytes = kBufferBytes);

    // Its batch refers to its socket.
    Line(const Line&) = delete;
    Line& operator=(const Line&) = delete;

    // Takes what the aggregator sends to a multicast group of IPv4, too. Throws std::system_error
    // if the interface that leads to the aggregator cannot join it.
    void join_group(const Address& group);

    // Closes the sockets. May be called more than once.
    void close();

    // Own address and port on the way to the aggregator.
    Address own_address() const { return socket_.own_address(); }

    // Whether the aggregator's host has reported that nobody listens on the port.
    bool refused() const { return receiver_.refused() || batch_.refused(); }

    // Bytes of a packet that was longer than the path's MTU; 0 if there was none.
    std::size_t too_long() const { return batch_.too_long(); }

    // Bytes of the longest IP packet on the path, as far as is known.
    std::size_t mtu() const { return socket_.mtu(); }

    // Begins a dialogue, which must live until it is over or another one begins: sends its first
    // packets.
    void open(Dialogue& dialogue);

    // Whether nothing is awaited.
    bool idle() const { return dialogue_ == nullptr || dialogue_->done(); }

    // Whether packets wait until the socket can be written to.
    bool blocked() const { return !batch_.empty(); }

    // When the dialogue's timer runs out, in seconds of the monotonic clock; infinite if idle.
    double next_timer() const;

    // Feeds the dialogue what has come, up to a batch of each socket; returns whether there may be
    // more. Throws what the dialogue does.
    bool receive();

    // Sends what is due by now.
    void expire(double now);

    // Goes on with packets that the socket did not take.
    void flush();

    // Sends one more JOIN, which an aggregator that is there answers, and one that has lost the job
    // refuses.
    void probe_liveness();

    // The file numbers of the sockets, the one that sends first; -1 for one that is not there.
    std::array<int, 2> numbers() const;

    // Datagrams that came while the receive buffers were full.
    std::uint64_t overflows() const;

    // System calls on the sockets so far. Any thread may ask.
    std::uint64_t calls() const { return receiver_.traffic().calls + batch_.traffic().calls; }

  private:
    void send(Octets datagram) override;
    void send_now(Octets datagram) override;
    bool receive_from(const datagrams::UdpSocket& socket);
    bool is_foreign(const Address& source) const { return !(source == aggregator_); }

    Address aggregator_;
    datagrams::UdpSocket socket_;
    std::optional<datagrams::UdpSocket> group_;
    Session& session_;
    LossSwitch* loss_;
    Dialogue* dialogue_ = nullptr;
    datagrams::Receiver receiver_;
    datagrams::SendBatch batch_;
    std::size_t waiting_ = 0;  // bytes in the batch since it was last given to the kernel
    packet::PacketBuffer packet_;
};

// Seconds of the monotonic clock.
double monotonic_now();

}  // namespace afflux::worker
