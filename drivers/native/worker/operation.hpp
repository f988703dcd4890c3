// One collective at one worker, as a machine of packets and time (protocol, section 6).
//
// It is fed with packets and the time in seconds, and gives packets to send and the time of its
// next timer. It knows neither sockets nor clocks, so tests can play any schedule of loss,
// duplication and delay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include "worker/columns.hpp"
#include "worker/direct.hpp"
#include "worker/exact_tensor.hpp"
#include "worker/outlet.hpp"
#include "worker/session.hpp"

namespace afflux::worker {

class Operation {
  public:
    // Takes the session's next number. The session and the tensor's memory must live as long.
    // Throws std::invalid_argument if the tensor is too large for the job.
    Operation(Session& session, const Tensor& tensor, std::uint32_t fingerprint);

    // When `expire` is due; infinite if nothing is outstanding.
    double next_timer() const { return next_timer_; }
    // Whether the result is complete.
    bool done() const { return done_; }

    // Sends the opening packets of all active slots.
    void open(double now, Outlet& out);

    // Takes a datagram that came from the aggregator's address; blocks must be aligned, as in a
    // PacketBuffer. Throws Disagreed or Misbehaved.
    void receive(packet::PacketBuffer& packet, std::size_t length, double now, Outlet& out);

    // Sends what is due as timers have run out, and moves them on.
    void expire(double now, Outlet& out);

    // Bitmap of the workers whose contributions lack, as the aggregator last said.
    std::uint64_t missing() const;

    // Whether the aggregator last said, of some slot, that it waits for its parent.
    bool waits_above() const;

  private:
    static constexpr double kNever = std::numeric_limits<double>::infinity();

    bool is_ours(const packet::Header& header, std::size_t length) const;
    void send(Slot& slot, wire::Present present, bool opening, double now, Outlet& out);
    void result(Slot& slot, wire::Present present, packet::PacketBuffer& packet, double now,
                Outlet& out);
    double due(const Slot& slot) const;
    void take_sample(const Slot& slot, double now);
    void opened(const Slot& slot, wire::Present present, const std::int32_t* blocks);
    void check_fingerprints(wire::Present present, const std::int32_t* blocks) const;
    void missing(Slot& slot, const std::uint32_t* words, double now, Outlet& out);

    Session& session_;
    Tensor tensor_;
    std::size_t active_ = 1;  // slots in use
    std::size_t open_slots_ = 1;
    std::uint32_t fingerprint_;
    std::optional<ExactTensor> exact_;
    std::optional<Direct> direct_;
    std::optional<Columns> columns_;
    wire::Operation number_;
    double next_timer_ = kNever;
    bool done_ = false;
};

}  // namespace afflux::worker
