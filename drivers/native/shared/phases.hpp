// The phases that all ranks of a group pass together.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "shared/segment.hpp"

namespace afflux::shared {

using Clock = std::chrono::steady_clock;

// How a rank waited. Written by one thread, read by any.
struct WaitCounts {
    std::atomic<std::uint64_t> waits{0};   // phases that were not over at the first look
    std::atomic<std::uint64_t> sleeps{0};  // times that the rank slept
    std::atomic<std::uint64_t> wakes{0};   // times that it woke others
};

class Phases {
  public:
    Phases(Segment& segment, int rank);

    // Arrives at the next phase, and publishes all that this rank has written so far. The last
    // phase must be over.
    void arrive();
    // Waits until all ranks have arrived; returns false if they have not at the deadline.
    // Throws Failed if a rank that is missing has ended, or a rank has failed the group.
    bool wait(Clock::time_point deadline);

    // Marks the group as failed for all ranks; the first text stays. Any thread.
    void fail(const std::string& text);
    bool failed() const;
    std::string failure() const;

    // Ranks that have not yet arrived at this one's phase. Any thread.
    std::vector<int> missing() const;
    const WaitCounts& counts() const { return counts_; }

    // Lets `wait` look for a while before it sleeps, which is sensible if each rank has a
    // processor.
    void allow_spinning() { may_spin_ = true; }

  private:
    bool over() const;
    bool spin(Clock::time_point start, Clock::time_point deadline) const;
    bool give_way(Clock::time_point deadline) const;
    enum class Ended { Looking, GivingWay, Sleeping };
    void learn(Ended ended, std::chrono::nanoseconds waited);
    // Returns whether the phase is over after all. Throws Failed if it never will be.
    bool look_around(Clock::time_point now);

    Segment& segment_;
    Gate& gate_;
    const int rank_;
    std::atomic<std::uint64_t> reached_{0};
    bool may_spin_ = false;
    std::chrono::nanoseconds spin_;  // how long looking pays, judging by the latest waits
    Clock::time_point looked_;
    WaitCounts counts_;
};

}  // namespace afflux::shared
