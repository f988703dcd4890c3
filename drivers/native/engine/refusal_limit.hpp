// How often an engine refuses: a token bucket. Nobody has verified whom a refusal goes to.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace afflux::engine {

class RefusalLimit {
  public:
    static constexpr unsigned kBurst = 64;
    // A token comes every so often: 4,000 a second.
    static constexpr std::chrono::nanoseconds kPeriod = std::chrono::microseconds(250);

    // Sets the time, since any moment but always the same. A limit that is never given the time
    // does not limit anything: then frames come from the same process.
    void at(std::chrono::nanoseconds now) {
        if (!counted_) counted_ = now;
        const auto periods = (now - *counted_) / kPeriod;
        if (periods <= 0) return;
        tokens_ = static_cast<unsigned>(std::min<decltype(periods)>(kBurst, tokens_ + periods));
        *counted_ += periods * kPeriod;
    }

    // Returns whether there was a token.
    bool take() {
        if (!counted_) return true;
        if (tokens_ == 0) return false;
        --tokens_;
        return true;
    }

  private:
    unsigned tokens_ = kBurst;
    // Tokens have been counted up to this time.
    std::optional<std::chrono::nanoseconds> counted_;
};

}  // namespace afflux::engine
