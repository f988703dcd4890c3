// What a worker keeps of a job run from one operation to the next. No sockets, no clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "packet/frame.hpp"
#include "worker/round_trip.hpp"
#include "worker/slot.hpp"

namespace afflux::worker {

// The job run, and this worker's place in it.
struct Place {
    wire::Job job;
    wire::Key key;
    wire::Round first_round;
    unsigned workers;  // of this aggregator
    unsigned lanes;
    std::size_t slots;
    wire::Worker worker;  // own number there
    unsigned rank;        // own number among all that are summed
    unsigned ranks;
    bool group;  // whether results go to a multicast group

    // Throws std::invalid_argument if a number is out of range.
    void check() const;
};

// Counts since they were taken last. Bytes are of UDP payload.
struct Counts {
    std::uint64_t packets_sent = 0;
    std::uint64_t packets_received = 0;
    std::uint64_t bytes_sent = 0;
    std::uint64_t bytes_received = 0;
    std::uint64_t blocks_sent = 0;
    std::uint64_t rounds = 0;
    std::uint64_t retransmissions = 0;
    std::uint64_t probes = 0;
    std::uint64_t ignored = 0;
    std::uint64_t dropped_sent = 0;
    std::uint64_t dropped_received = 0;
};

class Session {
  public:
    // Time-outs between repeated packets are `cap` seconds at most.
    Session(const Place& place, double cap);

    const Place place;
    std::vector<Slot> slots;
    RoundTrip trip;
    Counts counts;
    std::uint64_t number = 0;  // of the next operation
    // When the aggregator's last packet with this job's key came, in seconds.
    double heard_at = -std::numeric_limits<double>::infinity();

    std::array<std::uint8_t, wire::kUdpPayloadMin> join_packet() const;

    // A PROBE for the slot's outstanding round. Valid until the slot's next one is made.
    Octets probe(Slot& slot, wire::OpcodeDtype opcode_dtype) const;
};

}  // namespace afflux::worker
