// A count that one thread at a time raises, and that any thread may read meanwhile.
#pragma once

#include <atomic>
#include <cstdint>

namespace afflux::datagrams {

// Costs what a plain number does: as nobody else writes, nothing has to be locked.
class Tally {
  public:
    Tally() = default;
    Tally(const Tally& other) : value_(std::uint64_t{other}) {}
    Tally& operator=(const Tally& other) {
        value_.store(other, std::memory_order_relaxed);
        return *this;
    }

    void operator+=(std::uint64_t more) {
        value_.store(value_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
    }
    void operator++() { *this += 1; }
    operator std::uint64_t() const { return value_.load(std::memory_order_relaxed); }

  private:
    std::atomic<std::uint64_t> value_ = 0;
};

}  // namespace afflux::datagrams
