// One collective at one worker (protocol, section 6).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "worker/columns.hpp"
#include "worker/dialogue.hpp"
#include "worker/direct.hpp"
#include "worker/probe_pacing.hpp"
#include "worker/session.hpp"
#include "worker/side_by_side.hpp"

namespace afflux::worker {

class Operation : public Dialogue {
  public:
    // How many of so many aggregators carry out an operation: the first ones (protocol, section 3).
    static std::size_t sharing(const Tensor& tensor, std::size_t lanes, std::size_t aggregators);

    // Takes the session's next number. The session and the tensor's memory must live as long.
    // With a share it is one aggregator's part of a collective, whose other parts have the same
    // number, tensor and memory; `slots` is then the least slot count of the aggregators' jobs.
    // `again`: whether it brings blocks that were not summed. Throws std::invalid_argument if the
    // tensor is too large for the job.
    Operation(Session& session, const Tensor& tensor, std::uint32_t fingerprint, Share share = {},
              std::size_t slots = std::numeric_limits<std::size_t>::max(), bool again = false);

    double next_timer() const override { return next_timer_; }
    bool done() const override { return done_; }
    void open(double now, PacketSink& out) override;
    // Throws Disagreed or Misbehaved.
    void receive(packet::PacketBuffer& packet, std::size_t length, double now,
                 PacketSink& out) override;
    void expire(double now, PacketSink& out) override;

    // Bitmap of the workers whose contributions are missing, as the aggregator last reported.
    std::uint64_t missing_workers() const;

    // Bytes of the longest packet that never arrives, although the aggregator answers shorter ones;
    // 0 if there is none.
    std::size_t vanishing() const;

    // Blocks that the aggregator could not sum, in ascending order, of an operation that is over:
    // they are to be brought again.
    std::vector<std::size_t> not_summed() const;

    // Whether the aggregator last reported for some slot that it waits for its parent.
    bool waits_above() const;

  private:
    static constexpr double kNever = std::numeric_limits<double>::infinity();

    bool is_ours(const packet::Header& header, std::size_t length) const;
    void send(Slot& slot, wire::Present present, bool opening, double now, PacketSink& out);
    // Sends packets that wait while the window has room for them.
    void release(double now, PacketSink& out);
    void transmit(Slot& slot, double now, PacketSink& out);
    void release_least(double now, PacketSink& out);
    void take_result(Slot& slot, wire::Present present, packet::PacketBuffer& packet, double now,
                     PacketSink& out);
    double due(const Slot& slot) const;
    void ask(Slot& slot, double now, PacketSink& out);
    void join_again(double now, PacketSink& out);
    void take_sample(const Slot& slot, double now);
    unsigned carried() const;
    wire::OpcodeDtype opcode_dtype(const Slot& slot) const {
        return slot.opening ? tensor_.opening_opcode_dtype() : tensor_.opcode_dtype();
    }
    wire::OpcodeDtype result_opcode_dtype(const Slot& slot) const {
        return slot.opening ? tensor_.opening_opcode_dtype() : tensor_.result_opcode_dtype();
    }
    void opened(const Slot& slot, wire::Present present, const std::int32_t* blocks);
    void check_fingerprints(wire::Present present, const std::int32_t* blocks) const;
    void take_missing(Slot& slot, const std::uint32_t* words, double now, PacketSink& out);

    Session& session_;
    Tensor tensor_;
    std::size_t active_ = 1;  // slots in use
    std::size_t open_slots_ = 1;
    std::uint32_t fingerprint_;
    std::optional<Direct> direct_;
    std::optional<SideBySide> side_by_side_;
    std::optional<Columns> columns_;
    wire::Operation number_;
    double next_timer_ = kNever;
    double unanswered_since_ = kNever;  // the first probe since a packet has come, or JOIN has gone
    bool done_ = false;
    std::size_t outstanding_ = 0;  // packets
    ProbePacing probe_pacing_;
    std::vector<Slot*> due_;  // kept for its memory
    // Slots whose packets wait for room in the window, by turn and number: all workers send those
    // first that are first in this order, so that they do not wait for one another's others.
    using Waiting = std::pair<std::uint32_t, wire::Slot>;
    std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> waiting_;
};

}  // namespace afflux::worker
