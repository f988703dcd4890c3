// One thread that drives a worker's lines until their dialogues are over.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "datagrams/tally.hpp"
#include "worker/line.hpp"

namespace afflux::worker {

class UdpLoop {
  public:
    // The lines must live as long.
    explicit UdpLoop(std::vector<Line*> lines);

    // Feeds the lines' dialogues until all are over, a packet was too long, or the time of the
    // monotonic clock, in seconds, has come. Throws what a dialogue does.
    void run(double until);

    // Number of the line that `run` was serving when it threw.
    std::size_t serving() const { return serving_; }

    // How often it has waited, each time with one system call. Any thread may ask.
    std::uint64_t waits() const { return waits_; }

  private:
    // Waits until a line can be read, or written to if it has something left; notes which.
    void wait(double seconds);
    double next_timer() const;

    std::vector<Line*> lines_;
    std::vector<std::size_t> reads_;  // by line: since there was nothing to read, over all runs
    std::vector<bool> readable_;      // by line: whether there may be something to read
    std::vector<pollfd> sockets_;
    std::size_t serving_ = 0;
    datagrams::Tally waits_;
};

}  // namespace afflux::worker
