#include "worker/round_trip.hpp"

#include <algorithm>
#include <cmath>

namespace afflux::worker {

RoundTrip::RoundTrip(double cap)
    : cap_(cap),
      estimate_(std::min(kInitial, cap)),
      timeout_(estimate_),
      overdue_after_(estimate_) {}

void RoundTrip::take(double sent_at, double seconds) {
    constexpr double kGain = 1.0 / 8, kVariationGain = 1.0 / 4;
    sampled_from_ = std::max(sampled_from_, sent_at);
    double smooth = smoothed();
    if (smooth == 0) {
        smooth = seconds;
        variation_ = seconds / 2;
    } else {
        const double off = std::abs(smooth - seconds);
        variation_ += kVariationGain * (off - variation_);
        smooth += kGain * (seconds - smooth);
    }
    smoothed_.store(smooth, std::memory_order_relaxed);
    const double spread = 4 * variation_;
    estimate_ = std::min(smooth + std::max(kGranularity, spread), cap_);
    timeout_ = estimate_;
    overdue_after_ = smooth + std::max(kOverdue, spread);
}

void RoundTrip::sample(double sent_at, double now) {
    take(sent_at, now - sent_at);
    blocks_until_ = now + kBlocksCount;
}

void RoundTrip::sample_short(double sent_at, double now) {
    if (now >= blocks_until_) take(sent_at, now - sent_at);
}

void RoundTrip::sample_bound(double sent_at, double now) {
    const double seconds = now - sent_at;
    if (smoothed() == 0 || (seconds < smoothed() && now >= blocks_until_)) {
        take(sent_at, seconds);
    } else if (seconds < estimate_) {
        timeout_ = estimate_;
    }
}

void RoundTrip::expired(double sent_at, double now) {
    if (sent_at > sampled_from_ && sent_at >= doubled_at_) {
        doubled_at_ = now;
        timeout_ = std::min(2 * timeout_, cap_);
    }
}

}  // namespace afflux::worker
