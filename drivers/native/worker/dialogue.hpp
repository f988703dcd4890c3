// The exchange between a worker and its aggregator until the worker's request is answered.
#pragma once

#include <cstddef>

#include "packet/packet_buffer.hpp"
#include "worker/packet_sink.hpp"

namespace afflux::worker {

// Takes packets and the time in seconds; gives packets to send and the time of its next timer. A
// dialogue knows neither sockets nor clocks, so tests can play any schedule of loss, duplication
// and delay.
class Dialogue {
  public:
    virtual ~Dialogue() = default;

    // When `expire` is due; infinite if nothing is outstanding. It may be due for nothing.
    virtual double next_timer() const = 0;
    virtual bool done() const = 0;

    // Sends the first packets.
    virtual void open(double now, PacketSink& out) = 0;

    // Takes a datagram that came from the aggregator's address; blocks must be aligned, as in a
    // PacketBuffer.
    virtual void receive(packet::PacketBuffer& packet, std::size_t length, double now,
                         PacketSink& out) = 0;

    // Sends what is due as timers have run out, and moves them on.
    virtual void expire(double now, PacketSink& out) = 0;
};

}  // namespace afflux::worker
