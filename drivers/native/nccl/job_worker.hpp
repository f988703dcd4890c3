// A node's end of one job: its workers' lines to the aggregators that share the columns.
#pragma once

#include <poll.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "arithmetic/types.hpp"
#include "control/job.hpp"
#include "nccl/environment.hpp"
#include "nccl/liveness.hpp"
#include "worker/c_api.hpp"

namespace afflux::nccl {

// An all-reduce in place.
struct Reduction {
    void* elements;
    std::size_t count;
    arithmetic::Dtype dtype;
    arithmetic::Op op;
};

// Used by one thread. Failures are std::runtime_errors; then the worker has failed, and may
// only be destroyed.
class JobWorker {
  public:
    // One ticket for each aggregator. Throws as well if one cannot be reached.
    JobWorker(std::vector<control::Ticket> tickets, unsigned rank, const Settings& settings);
    ~JobWorker() { close(); }
    JobWorker(const JobWorker&) = delete;
    JobWorker& operator=(const JobWorker&) = delete;

    // Makes this worker's address known to the aggregators.
    void join(double seconds);

    // Begins an all-reduce; its memory must stay until it is over, or the worker closed.
    void begin(const Reduction& reduction);
    bool busy() const { return operation_ != 0; }

    // Takes what has come and sends what is due. Returns whether the operation is over.
    bool advance();

    // When to advance at the latest, in seconds of the monotonic clock.
    double next_timer() const;

    // Adds what to wait for.
    void watch(std::vector<pollfd>& polled) const;

    // Stops at once, and touches no memory of others any more.
    void close();

    // The kind of the aggregators' engines; empty if they differ.
    std::string engine() const;

    // Packets and blocks that it has sent, retries included.
    std::string statistics() const;

  private:
    struct End {
        End(const control::Ticket& ticket, unsigned rank, const Settings& settings);

        const control::Ticket& ticket;
        worker::Session session;
        std::unique_ptr<worker::LossSwitch> loss;
        worker::Line line;
        Liveness liveness;
    };

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
