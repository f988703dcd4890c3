// How many packets of a worker may be outstanding at one aggregator.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

namespace afflux::worker {

// Grows by one packet while as many are answered, and shrinks by half a packet for each that is
// lost: at a share p of losses it tends to 2 / p. So the odd packet that a bad cable loses hardly
// changes it.
//
// Many workers may fill the queue at the aggregator's port in one go (incast), and half of all
// packets get lost then. Where so many do, the window is cut, down to eight packets if need be,
// until few are lost, and the size at which that is so becomes a ceiling. It is raised again now
// and then: the more seldom, the more often this has been in vain.
class Window {
  public:
    // Of as many packets as the job has slots.
    explicit Window(std::size_t slots)
        : most_(slots), size_(static_cast<double>(slots)), ceiling_(size_) {}

    // The answers to so many packets fit the receiver's buffer.
    void limit(std::size_t packets) {
        most_ = std::clamp<std::size_t>(packets, 1, most_);
        ceiling_ = std::min(ceiling_, static_cast<double>(most_));
        size_ = std::min(size_, ceiling_);
    }

    std::size_t size() const { return static_cast<std::size_t>(size_); }

    // Notes that a packet that was sent once has been answered.
    void answered() {
        size_ = std::min(size_ + 1 / size_, ceiling_);
        count(0);
    }

    // Notes that a packet, or its answer, was lost.
    void lost() {
        size_ = std::max(size_ - kLoss, std::min(size_, kLeast));
        count(1);
    }

  private:
    bool crowded() const { return ceiling_ < static_cast<double>(most_); }

    // Looks at so many packets at a time, and cuts the window at once if too many of them are lost.
    void count(unsigned lost) {
        // They were sent before the last cut.
        if (stale_ > 0) {
            --stale_;
            return;
        }
        ++seen_;
        lost_ += lost;
        if (lost_ >= (crowded() ? kManyOfCrowded : kMany)) {
            cut();
        } else if (seen_ == kSeen) {
            seen_ = lost_ = 0;
            raise();
        }
    }

    void cut() {
        stale_ = size();
        seen_ = lost_ = 0;
        size_ = ceiling_ = std::max(size_ * kCut, std::min(size_, kLeast));
        if (raised_) patience_ = std::min(2 * patience_, kMostPatience);
        waited_ = 0;
        raised_ = false;
    }

    void raise() {
        if (!crowded() || ++waited_ < patience_) return;
        raised_ = true;
        ceiling_ = std::min(ceiling_ + std::max(1.0, ceiling_ / 8), static_cast<double>(most_));
        if (!crowded()) patience_ = kLeastPatience;
    }

    static constexpr double kLoss = 0.5;
    // Packets that keep a path of 1 Gbit/s busy for 0.1 ms.
    static constexpr double kLeast = 8;
    // Of so many packets:
    static constexpr unsigned kSeen = 256;
    // lost by a queue and not by cables;
    static constexpr unsigned kMany = 64;
    // by a queue that is known to overflow.
    static constexpr unsigned kManyOfCrowded = 8;
    static constexpr double kCut = 0.7;
    // How many times so many packets pass before a ceiling is raised.
    static constexpr unsigned kLeastPatience = 4, kMostPatience = 256;

    std::size_t most_;
    double size_;
    double ceiling_;
    std::size_t stale_ = 0;
    unsigned seen_ = 0, lost_ = 0;
    unsigned waited_ = 0, patience_ = kLeastPatience;
    bool raised_ = false;
};

}  // namespace afflux::worker
