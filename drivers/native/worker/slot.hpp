// One slot of a worker: its outstanding packet, and when to ask again (protocol, section 6).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "packet/frame.hpp"
#include "packet/packet_buffer.hpp"

namespace afflux::worker {

using packet::Octets;

// A slot for the life of a job run. Times in seconds.
class Slot {
  public:
    Slot(wire::Slot own_number, wire::Round first_round, std::size_t lanes, std::size_t block_bytes)
        : number(own_number), round(first_round), packet(lanes, block_bytes) {}

    wire::Slot number;
    wire::Round round;  // of the outstanding packet, or of the next one
    // The contribution to `round`, as it was sent, until its result is there.
    packet::PacketBuffer packet;
    std::array<std::uint8_t, wire::kUdpPayloadMin> probe{};  // the latest
    std::size_t length = 0;                                  // bytes of that contribution
    bool outstanding = false;                                // a result is awaited
    bool opening = false;                                    // `round` opens an operation
    bool overtaken = false;     // asked after because one that was sent later has been answered
    std::uint32_t turn = 0;     // rounds of the slot in this operation before this one
    bool asked = false;         // probed or sent again, so that its round trip is not a sample
    bool waits_above = false;   // the latest MISSING named nobody: the aggregator's parent
    std::uint64_t missing = 0;  // workers that the latest MISSING named
    unsigned probes_open = 0;   // probes sent since the last answer
    unsigned lost = 0;          // answers that said that the contribution has not come
    double sent_at = 0;         // when the contribution was sent first
    double deadline = 0;        // when to ask again
    double wait = 0;            // timeout of the latest transmission
    double probed_at = 0;       // when the latest probe was sent

    // Notes that the packet is filled for `round`, with so many bytes.
    void filled(std::size_t bytes, bool opens) {
        length = bytes;
        opening = opens;
        turn = opens ? 0 : turn + 1;
    }

    // Notes that it goes out now; gives its datagram.
    Octets sent(double now, double timeout) {
        outstanding = true;
        sent_at = now;
        probes_open = lost = 0;
        missing = 0;
        asked = waits_above = overtaken = false;
        ask_in(timeout, now);
        return {packet.datagram(), length};
    }

    // The outstanding contribution as it was.
    Octets again() {
        asked = true;
        return {packet.datagram(), length};
    }

    // Sets the timer after a probe was answered without a result.
    void answered(double now, double timeout) {
        probes_open = 0;
        ask_in(timeout, now);
    }

    // Notes that a probe goes out now, as the packet is overdue, and moves the timer on.
    void probed(double now, double cap) {
        asked = true;
        probed_at = now;
        ++probes_open;
        ask_in(std::min(2 * wait, cap), now);
    }

  private:
    void ask_in(double timeout, double now) {
        wait = timeout;
        deadline = now + timeout;
    }
};

}  // namespace afflux::worker
