// How many slots are asked after at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

namespace afflux::worker {

// While the path carries answers, each slot that is due is asked after. When nothing has come for
// longer than a round trip, because a process has lost its processor or a link is down, all slots
// become due at once: then one probe goes out, ever more seldom, and with each answer one more may
// be open. So the packets after the stall do not form a burst. Times in seconds.
class ProbePacing {
  public:
    // Begins a look at the slots. `silent`: nothing has been heard for longer than a round trip.
    void start(bool silent) {
        open_ = 0;
        first_open_ = kNever;
        kept_back_ = false;
        silent_ = silent;
        if (silent) most_ = 1;
    }

    // Notes a slot whose latest probe, sent at `probed_at`, has not been answered. It counts for a
    // while: it may be lost.
    void note_open(double probed_at, double now) {
        if (probed_at + patience_ <= now) return;
        ++open_;
        first_open_ = std::min(first_open_, probed_at);
    }

    // Whether a slot that is due may be asked after now; it is then.
    bool may_ask(double now) {
        if (open_ >= most_) {
            kept_back_ = true;
            return false;
        }
        // Of the probes in silence each waits for twice as long as the one before.
        if (silent_) patience_ = std::min(2 * patience_, kLongest);
        ++open_;
        first_open_ = std::min(first_open_, now);
        return true;
    }

    // When slots that are kept back may be asked after, if no answer comes.
    double next(double now) const { return std::max(first_open_ + patience_, now); }

    // Notes an answer; the timeout is `timeout` now. Returns whether slots were kept back.
    bool answered(double timeout) {
        patience_ = std::min(timeout, kLongest);
        if (most_ < kAll) ++most_;
        return kept_back_;
    }

  private:
    static constexpr double kNever = std::numeric_limits<double>::infinity();
    static constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
    static constexpr double kLongest = 0.1;

    std::size_t most_ = kAll;  // probes that may be open
    double patience_ = 0.005;
    // Since start():
    std::size_t open_ = 0;
    double first_open_ = kNever;
    bool kept_back_ = false;
    bool silent_ = false;
};

}  // namespace afflux::worker
