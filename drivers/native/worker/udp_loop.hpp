// A worker's sockets, driven until its operation is over: datagrams in batches, and the clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/loss_switch.hpp"
#include "worker/operation.hpp"

namespace afflux::worker {

// Datagrams to and from one aggregator, over sockets that somebody else has opened and closes.
class Line {
  public:
    // Non-blocking sockets: one that is connected to the aggregator; one that is bound to a
    // multicast group, or -1, from which only what `address` and `port` sent is taken (host byte
    // order). `loss` may be null; it must live as long.
    Line(int socket, int group, std::uint32_t address, std::uint16_t port, LossSwitch* loss);

    // Whether the aggregator's host has said that nobody listens on the port.
    bool refused() const { return refused_; }

    // Bytes of a packet that was longer than the path's MTU; 0 if there was none.
    std::size_t too_long() const { return too_long_; }

    // Feeds the operation, which has been opened, until it is over, a packet was too long, or the
    // time of the monotonic clock, in seconds, has come. Throws what the operation does.
    void run(Session& session, Operation& operation, double until);

    // Opens the operation.
    void open(Session& session, Operation& operation);

  private:
    class Batch;

    // Takes what has come, up to a batch; returns whether there may be more.
    bool receive(int socket, Session& session, Operation& operation, Outlet& out);
    void wait(double seconds) const;

    int socket_;
    int group_;
    std::uint32_t address_;
    std::uint16_t port_;
    LossSwitch* loss_;
    bool refused_ = false;
    std::size_t too_long_ = 0;
    std::vector<packet::PacketBuffer> rooms_;
};

}  // namespace afflux::worker
