// How a worker makes its address known to the aggregator (protocol, section 10).
#pragma once

#include <limits>

#include "worker/dialogue.hpp"
#include "worker/session.hpp"

namespace afflux::worker {

class Join final : public Dialogue {
  public:
    // The session must live as long.
    explicit Join(Session& session);

    double next_timer() const override { return deadline_; }
    bool done() const override { return done_; }
    void open(double now, PacketSink& out) override;
    // Throws Refused, or DifferentJob if the job is not the session's.
    void receive(packet::PacketBuffer& packet, std::size_t length, double now,
                 PacketSink& out) override;
    void expire(double now, PacketSink& out) override;

    // How often the JOIN was sent.
    unsigned sends() const { return sends_; }

  private:
    static constexpr double kNever = std::numeric_limits<double>::infinity();

    void send(double wait, double now, PacketSink& out);

    Session& session_;
    unsigned sends_ = 0;
    double sent_at_ = 0;
    double wait_ = 0;
    double deadline_ = kNever;
    bool done_ = false;
};

}  // namespace afflux::worker
