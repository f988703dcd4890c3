// A node's end of a job that aggregators carry out which speak packets: its lines to those that
// share the columns.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "control/job.hpp"
#include "nccl/environment.hpp"
#include "nccl/job_worker.hpp"
#include "nccl/liveness.hpp"
#include "worker/c_api.hpp"

namespace afflux::nccl {

class PacketWorker final : public JobWorker {
  public:
    // One ticket for each aggregator. Throws as well if one cannot be reached.
    PacketWorker(std::vector<control::Ticket> tickets, unsigned rank, const Settings& settings);
    ~PacketWorker() override { stop(); }

    // Makes this worker's address known to the aggregators.
    void join(double seconds);

    void begin(const Reduction& reduction) override;
    bool advance() override;
    double next_timer() const override;
    void watch(std::vector<pollfd>& polled) const override;
    void leave_off() override { stop(); }
    void close(const std::string&) override { stop(); }

    // The kind of the aggregators' engines, if they are of one.
    std::string engine() const override;
    // Packets and blocks, retries included.
    std::string statistics() const override;

  private:
    struct End {
        End(const control::Ticket& ticket, unsigned rank, const Settings& settings);

        const control::Ticket& ticket;
        worker::Session session;
        std::unique_ptr<worker::LossSwitch> loss;
        worker::Line line;
        Liveness liveness;
    };

    void stop();
    void look(double now);
    [[noreturn]] void fail(const char* text);

    const std::vector<control::Ticket> tickets_;
    const double peer_s_;
    std::deque<End> ends_;
    std::unique_ptr<worker::UdpLoop> loop_;
    std::unique_ptr<worker::Calls> calls_;
    std::uint64_t operation_ = 0;
    double next_look_ = 0;
};

}  // namespace afflux::nccl
