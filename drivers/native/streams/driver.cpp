#include "streams/driver.hpp"

#include <sched.h>

#include <algorithm>
#include <utility>

namespace afflux::streams {
namespace {

using std::chrono::nanoseconds;

// Looking for data without sleeping pays if they usually come as soon as this.
constexpr nanoseconds kSpin{50'000};

void count(std::atomic<std::uint64_t>& counter) {
    counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

}  // namespace

Driver::Driver(std::vector<Lane> lanes, int wake, WaitCounts& counts)
    : lanes_(std::move(lanes)), wake_(wake), counts_(counts) {}

bool Driver::progress() {
    bool moved = false;
    for (std::size_t lane = 0; lane < used_; ++lane) moved |= lanes_[lane].exchange->progress();
    return moved;
}

bool Driver::over() const {
    for (std::size_t lane = 0; lane < used_; ++lane)
        if (!lanes_[lane].exchange->over()) return false;
    return true;
}

bool Driver::spin(Clock::time_point start) {
    const auto longest = std::min(kSpin, 2 * usual_wait_);
    while (Clock::now() - start < longest) {
        // Others run meanwhile, if they have no processor of their own.
        ::sched_yield();
        if (progress()) return true;
    }
    return false;
}

bool Driver::wait(Clock::time_point deadline) {
    const auto start = Clock::now();
    count(counts_.waits);
    bool came = usual_wait_ < kSpin && spin(start);
    auto now = Clock::now();
    if (!came && now < deadline) {
        count(counts_.sleeps);
        polled_.clear();
        for (std::size_t lane = 0; lane < used_; ++lane) {
            const auto& [exchange, sockets] = lanes_[lane];
            for (std::size_t r = 0; r < sockets.size(); ++r) {
                if (sockets[r] < 0) continue;
                short events = 0;
                if (exchange->wants_input(static_cast<int>(r))) events |= POLLIN;
                if (exchange->wants_output(static_cast<int>(r))) events |= POLLOUT;
                if (events) polled_.push_back({sockets[r], events, 0});
            }
        }
        polled_.push_back({wake_, POLLIN, 0});
        const auto left = std::chrono::duration_cast<nanoseconds>(deadline - now).count();
        const timespec most{left / 1'000'000'000, left % 1'000'000'000};
        came = ::ppoll(polled_.data(), polled_.size(), &most, nullptr) != 0;
        now = Clock::now();
    }
    // One late rank does not make spinning useless for long.
    usual_wait_ = (7 * usual_wait_ + std::min<nanoseconds>(now - start, 4 * kSpin)) / 8;
    return came;
}

}  // namespace afflux::streams
