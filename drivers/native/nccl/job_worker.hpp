// A node's end of one job, whatever carries its sums.
#pragma once

#include <poll.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "arithmetic/types.hpp"

namespace afflux::nccl {

// An all-reduce in place.
struct Reduction {
    void* elements;
    std::size_t count;
    arithmetic::Dtype dtype;
    arithmetic::Op op;
};

// The aggregator has ended, is silent, or does not know the job any more; the nodes are all there.
class AggregatorGone : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// Used by one thread at a time. Failures are std::runtime_errors; then the worker has failed, and
// may only be closed.
class JobWorker {
  public:
    JobWorker() = default;
    virtual ~JobWorker() = default;
    JobWorker(const JobWorker&) = delete;
    JobWorker& operator=(const JobWorker&) = delete;

    // Begins an all-reduce; its memory must stay until it is over, or the worker closed.
    virtual void begin(const Reduction& reduction) = 0;

    // Takes what has come and sends what is due. Returns whether the operation is over.
    virtual bool advance() = 0;

    // When to advance at the latest, in seconds of the monotonic clock.
    virtual double next_timer() const = 0;

    // Adds what to wait for.
    virtual void watch(std::vector<pollfd>& polled) const = 0;

    // Takes nothing any more, and touches no memory of others; its connections stay, so that nodes
    // which do not know why yet find nothing wrong with this one.
    virtual void leave_off() = 0;

    // Stops at once, and touches no memory of others any more. If the communicator has failed,
    // `why` is the reason.
    virtual void close(const std::string& why) = 0;

    // The kind of what sums, as the table of sizes names it; empty if there are several.
    virtual std::string engine() const = 0;

    // Counts of packets or bytes that it has sent, as text.
    virtual std::string statistics() const = 0;
};

}  // namespace afflux::nccl
