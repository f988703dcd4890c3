// How long to wait for an answer: the estimator of RFC 6298, with Karn's rule. Times in seconds.
#pragma once

#include <atomic>
#include <limits>

namespace afflux::worker {

// Until the first sample.
inline constexpr double kInitial = 0.2;

// The least by which the timeout exceeds the smoothed round trip. RFC 6298 has one second for the
// sake of TCP's delayed acknowledgements; here there are none, but ranks that share processors: the
// answer waits for the last of them to be scheduled. Linux runs a process for 3 to 4 ms at a time.
// Asking too early costs a packet of 128 bytes and its answer.
inline constexpr double kGranularity = 0.005;

// The same for a packet when a later one has been answered: then the others have had a processor.
inline constexpr double kOverdue = 0.001;

// For how long after a packet with blocks those without do not count.
inline constexpr double kBlocksCount = 1.0;

// Samples must come from packets that were sent once (Karn): the answer to a repeated one does not
// show which it answers. So a timeout that proves too short must stay doubled until an answer comes
// in time, or every packet of a slow aggregator would be asked for again for ever.
class RoundTrip {
  public:
    // The longest timeout is `cap`.
    explicit RoundTrip(double cap);

    double cap() const { return cap_; }
    // How long to wait now.
    double timeout() const { return timeout_; }
    // Smoothed round trip, 0 before the first sample. Any thread may ask while another one samples.
    double smoothed() const { return smoothed_.load(std::memory_order_relaxed); }

    // When a packet that was sent at `sent_at` is overdue though its timeout has not passed,
    // because one that was sent later has been answered (as in RFC 8985). Infinite if none has.
    double overdue(double sent_at) const {
        return sent_at < sampled_from_ ? sent_at + overdue_after_ : kNever;
    }
    // How long after sending that is.
    double overdue_after() const { return overdue_after_; }

    // Takes the round trip of a packet with blocks that was sent once, at `sent_at`, and answered
    // now.
    void sample(double sent_at, double now);

    // The same of a packet without blocks, which a slow aggregator answers far sooner. For a while
    // after a packet with blocks it does not count: the estimate would fall with each opening
    // round, and the blocks that follow it would be asked for too early.
    void sample_short(double sent_at, double now);

    // The same if the answer may have been delayed by something else: the round trip is at most
    // this.
    void sample_bound(double sent_at, double now);

    // Notes that the timeout of a packet that was sent at `sent_at` passed. It does not double if
    // a later packet was answered, since then this one is not slow but lost; and it doubles only
    // once for all packets of one flight.
    void expired(double sent_at, double now);

  private:
    static constexpr double kNever = std::numeric_limits<double>::infinity();

    void take(double sent_at, double seconds);

    double cap_;
    double estimate_;  // the timeout without doubling
    double timeout_;
    double overdue_after_;
    std::atomic<double> smoothed_ = 0;
    double variation_ = 0;
    double sampled_from_ = -kNever;  // when the latest of the packets that gave samples was sent
    double doubled_at_ = -kNever;
    double blocks_until_ = -kNever;  // until then only packets with blocks count
};

}  // namespace afflux::worker
