// How long to wait for an answer: the estimator of RFC 6298, with Karn's rule. Times in seconds.
#pragma once

#include <limits>

namespace afflux::worker {

// RFC 6298 asks for one second, for the sake of TCP's delayed acknowledgements; there are none
// here. Less than some scheduling quanta above the round trip would repeat packets whose receiver
// merely had to wait for a processor.
inline constexpr double kGranularity = 0.02;
inline constexpr double kInitial = 0.2;

// Samples must come from packets that were sent once (Karn): the answer to a repeated one does not
// say which it answers. So a time-out that proves too short must stay doubled until a sample comes,
// or every packet of a slow aggregator would be repeated for ever.
class RoundTrip {
  public:
    // The longest time-out is `cap`.
    explicit RoundTrip(double cap);

    double cap() const { return cap_; }
    // How long to wait now.
    double timeout() const { return timeout_; }
    // Smoothed round trip, 0 before the first sample.
    double smoothed() const { return smoothed_; }

    // Takes the round trip of a packet that was sent once, at `sent_at`, and answered now.
    void sample(double sent_at, double now);

    // Notes that the time-out of a packet that was sent at `sent_at` passed. It does not double if
    // a later packet was answered, since then this one is not slow but lost; and it doubles only
    // once for all packets of one flight.
    void expired(double sent_at, double now);

  private:
    static constexpr double kNever = -std::numeric_limits<double>::infinity();

    double cap_;
    double timeout_;
    double smoothed_ = 0;
    double variation_ = 0;
    double sampled_from_ = kNever;  // when the latest of the packets that gave samples was sent
    double doubled_at_ = kNever;
};

}  // namespace afflux::worker
