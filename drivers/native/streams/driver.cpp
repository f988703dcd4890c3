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
    // While something moved here, more may have come.
    if (moved) look_everywhere();
    return moved;
}

bool Driver::over() const {
    for (std::size_t lane = 0; lane < used_; ++lane)
        if (!lanes_[lane].exchange->over() || !lanes_[lane].carrier->flushed()) return false;
    return true;
}

void Driver::look_at(const Lane& lane) {
    for (std::size_t r = 0; r < lane.carrier->members(); ++r) {
        if (lane.carrier->socket(r) < 0) continue;
        lane.exchange->look_for_input(static_cast<int>(r));
        lane.exchange->look_for_output(static_cast<int>(r));
    }
}

void Driver::look_everywhere() {
    for (std::size_t lane = 0; lane < used_; ++lane) look_at(lanes_[lane]);
}

bool Driver::spin(Clock::time_point start) {
    const auto longest = std::min(kSpin, 2 * usual_wait_);
    while (Clock::now() - start < longest) {
        // Others run meanwhile, if they have no processor of their own.
        ::sched_yield();
        look_everywhere();
        if (progress()) return true;
    }
    return false;
}

// Lists those that are waited for. Returns false if one has something already.
bool Driver::list_streams() {
    polled_.clear();
    places_.clear();
    for (std::size_t lane = 0; lane < used_; ++lane) {
        const auto& [exchange, carrier] = lanes_[lane];
        if (!carrier->arm()) {
            look_everywhere();
            return false;
        }
        for (std::size_t r = 0; r < carrier->members(); ++r) {
            if (carrier->socket(r) < 0) continue;
            const auto rank = static_cast<int>(r);
            const short events =
                carrier->events(r, exchange->wants_input(rank), exchange->wants_output(rank));
            if (!events) continue;
            if (events & POLLIN) carrier->expect(r, exchange->expects(rank));
            polled_.push_back({carrier->socket(r), events, 0});
            places_.emplace_back(&lanes_[lane], rank);
        }
        if (carrier->descriptor() < 0) continue;
        polled_.push_back({carrier->descriptor(), POLLIN, 0});
        places_.emplace_back(&lanes_[lane], -1);
    }
    return true;
}

void Driver::watch(std::vector<pollfd>& polled) {
    list_streams();
    polled.insert(polled.end(), polled_.begin(), polled_.end());
}

// Sleeps until a stream has what is waited for. Returns whether one has, or this was woken.
bool Driver::sleep(Clock::duration longest) {
    if (!list_streams()) return true;
    polled_.push_back({wake_, POLLIN, 0});
    const auto left = std::chrono::duration_cast<nanoseconds>(longest).count();
    const timespec most{left / 1'000'000'000, left % 1'000'000'000};
    if (::ppoll(polled_.data(), polled_.size(), &most, nullptr) == 0) return false;
    for (std::size_t i = 0; i < places_.size(); ++i) {
        const auto& [lane, rank] = places_[i];
        if (!polled_[i].revents) continue;
        if (rank >= 0) lane->carrier->readable(static_cast<std::size_t>(rank));
        if (lane->carrier->descriptor() >= 0) {
            // Any rank may have sent something, or ended.
            look_at(*lane);
            continue;
        }
        // An error shows in either.
        if (polled_[i].revents & ~POLLOUT) lane->exchange->look_for_input(rank);
        if (polled_[i].revents & ~POLLIN) lane->exchange->look_for_output(rank);
    }
    return true;
}

bool Driver::wait(Clock::time_point deadline) {
    const auto start = Clock::now();
    if (start >= deadline) return false;
    count(counts_.waits);
    bool came = usual_wait_ < kSpin && spin(start);
    auto now = Clock::now();
    if (!came && now < deadline) {
        count(counts_.sleeps);
        came = sleep(deadline - now);
        now = Clock::now();
    }
    // One late rank does not make spinning useless for long.
    usual_wait_ = (7 * usual_wait_ + std::min<nanoseconds>(now - start, 4 * kSpin)) / 8;
    return came;
}

}  // namespace afflux::streams
