// How many packets of a worker may be outstanding at one aggregator.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

namespace afflux::worker {

// Grows by one packet while as many are answered, and shrinks by half a packet for each that is
// lost: at a share p of losses it tends to 2 / p. A queue that overflows loses many packets and
// halves it; the odd packet that a bad cable loses hardly changes it.
class Window {
  public:
    // Of as many packets as the job has slots.
    explicit Window(std::size_t slots) : most_(slots), size_(static_cast<double>(slots)) {}

    // The answers to so many packets fit the receiver's buffer.
    void limit(std::size_t packets) {
        most_ = std::clamp<std::size_t>(packets, 1, most_);
        size_ = std::min(size_, static_cast<double>(most_));
    }

    std::size_t size() const { return static_cast<std::size_t>(size_); }

    // Notes that a packet that was sent once has been answered.
    void answered() { size_ = std::min(size_ + 1 / size_, static_cast<double>(most_)); }

    // Notes that a packet, or its answer, was lost.
    void lost() { size_ = std::max(size_ - kLoss, static_cast<double>(std::min(most_, kLeast))); }

  private:
    static constexpr double kLoss = 0.5;
    // What keeps a path of 1 Gbit/s busy for 0.1 ms.
    static constexpr std::size_t kLeast = 8;

    std::size_t most_;
    double size_;
};

}  // namespace afflux::worker
