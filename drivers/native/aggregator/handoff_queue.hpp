// Packets that came to a thread that does not have their slot, on their way to the one that has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "packet/frame.hpp"

namespace afflux::aggregator {

struct HandedOff {
    packet::Endpoint peer;
    std::uint16_t port;  // of the engine
    std::vector<std::uint8_t> payload;
};

// Rarely used: the kernel steers packets, and errs only where it has joined packets of several
// threads, or cannot steer. Thread-safe.
class HandoffQueue {
  public:
    enum class Put { First, More, Full };

    // Copies a payload in; says whether it is the first, for which the taker must be woken.
    Put put(const packet::Endpoint& peer, std::uint16_t port, packet::Octets payload) {
        const std::lock_guard alone(mutex_);
        if (waiting_.size() == kMost) return Put::Full;
        waiting_.push_back({peer, port, {payload.data, payload.data + payload.bytes}});
        return waiting_.size() == 1 ? Put::First : Put::More;
    }

    std::vector<HandedOff> take() {
        const std::lock_guard alone(mutex_);
        return std::exchange(waiting_, {});
    }

  private:
    // More than the credit of a job, as a rule.
    static constexpr std::size_t kMost = 4096;

    std::mutex mutex_;
    std::vector<HandedOff> waiting_;
};

}  // namespace afflux::aggregator
