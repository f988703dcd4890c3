// A worker's state that lasts for a job run. No sockets, no clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "datagrams/tally.hpp"
#include "packet/frame.hpp"
#include "worker/errors.hpp"
#include "worker/journal.hpp"
#include "worker/round_trip.hpp"
#include "worker/slot.hpp"
#include "worker/window.hpp"

namespace afflux::worker {

// The job run, and which of its workers this one is.
struct JobRun {
    wire::Job number;
    wire::Key key;
    wire::Round first_round;
    unsigned workers;  // of this aggregator
    unsigned lanes;
    std::size_t slots;
    wire::Worker worker;  // own number there
    unsigned rank;        // own number among all that are summed
    unsigned ranks;
    // Bitmap of other ranks, of its host, whose elements this worker sends, too.
    std::uint64_t others = 0;
    std::uint32_t credit;
    std::uint32_t group_host;  // multicast address that results go to; 0 if there is none
    std::uint16_t group_port;
    unsigned ranges = 1;  // of the slots, one for each thread of the aggregator
    // Of each partial sum of float32 that goes there: 40, 48 or 64, which all aggregators take.
    int partial_bits = 64;

    // The range that a slot is in.
    unsigned range_of(wire::Slot slot) const {
        return static_cast<unsigned>(std::size_t{slot} * ranges / slots);
    }

    bool has_group() const { return group_host != 0; }

    // The content that JOINED must have.
    JobTerms terms() const;

    // Throws std::invalid_argument if a number is out of range.
    void check() const;
};

// Counts since the session began, which any thread may read. Bytes are of UDP payload.
struct Counts {
    using Tally = datagrams::Tally;

    Tally packets_sent;
    Tally packets_received;
    Tally bytes_sent;
    Tally bytes_received;
    Tally blocks_sent;
    Tally rounds;
    Tally retransmissions;
    Tally probes;
    Tally ignored;
    Tally dropped_sent;
    Tally dropped_received;
};

class Session {
  public:
    // Timeouts are `cap` seconds at most.
    Session(const JobRun& job, double cap);

    const JobRun job;
    std::vector<Slot> slots;
    RoundTrip trip;
    Window window;
    Counts counts;
    std::uint64_t number = 0;  // of the next operation
    // Why the aggregator has refused the latest JOIN of an operation, a wire::Refusal, if nothing
    // else has come from it since; else 0.
    std::uint32_t refusal = 0;
    // Of the results to the group; JOINED tells it.
    std::optional<wire::Key> group_key;
    // Learns what comes of the calls; null if nobody needs to know. Of all sessions of a worker.
    std::shared_ptr<Journal> journal;
    // When the aggregator's last packet with this job's key came, in seconds.
    double heard_at = -std::numeric_limits<double>::infinity();

    // The JOIN that makes this worker's address known to the aggregator.
    Octets join() const { return {join_.data(), join_.size()}; }

    // A PROBE for the slot's outstanding round. Valid until the slot's next one is made.
    Octets probe(Slot& slot, wire::OpcodeDtype opcode_dtype) const;

  private:
    std::array<std::uint8_t, wire::kUdpPayloadMin> join_;
};

}  // namespace afflux::worker
