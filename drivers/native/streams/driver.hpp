// Moves lanes forward: looks at their streams, or sleeps until there is something to do.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "streams/exchange.hpp"

namespace afflux::streams {

using Clock = std::chrono::steady_clock;

// How lanes waited; any thread reads it.
struct WaitCounts {
    std::atomic<std::uint64_t> waits{0}, sleeps{0};
};

// Used by one thread at a time.
class Driver {
  public:
    struct Lane {
        Exchange* exchange;
        carriers::LaneCarrier* carrier;
    };

    // `wake`: an eventfd that ends a wait.
    Driver(std::vector<Lane> lanes, int wake, WaitCounts& counts);

    // The first lanes that carry the operation that has begun.
    void use(std::size_t lanes) { used_ = lanes; }
    bool progress();
    bool over() const;
    // Waits until a stream has data or room, or the deadline. Returns false at the deadline.
    bool wait(Clock::time_point deadline);
    // Finds out, without waiting, which streams have data or room.
    void look() { sleep(Clock::duration::zero()); }
    // Adds the streams that are waited for.
    void watch(std::vector<pollfd>& polled);

  private:
    bool spin(Clock::time_point start);
    void look_everywhere();
    static void look_at(const Lane& lane);
    bool list_streams();
    bool sleep(Clock::duration longest);

    const std::vector<Lane> lanes_;
    const int wake_;
    WaitCounts& counts_;
    std::size_t used_ = 0;
    std::vector<pollfd> polled_;
    std::vector<std::pair<const Lane*, int>> places_;  // a lane's rank, or -1 for all of its ranks
    std::chrono::nanoseconds usual_wait_{0};
};

}  // namespace afflux::streams
