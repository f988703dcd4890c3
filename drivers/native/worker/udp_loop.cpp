#include "worker/udp_loop.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace afflux::worker {
namespace {

// Seconds for which a line's timers wait while its socket is read out.
constexpr double kDrain = 0.02;

}  // namespace

UdpLoop::UdpLoop(std::vector<Line*> lines) : lines_(std::move(lines)) {}

double UdpLoop::next_timer() const {
    double next = std::numeric_limits<double>::infinity();
    for (const Line* line : lines_) next = std::min(next, line->next_timer());
    return next;
}

void UdpLoop::run(double until) {
    readable_.assign(lines_.size(), true);
    drained_at_.assign(lines_.size(), monotonic_now());
    for (;;) {
        bool more = false;
        for (serving_ = 0; serving_ < lines_.size(); ++serving_) {
            Line& line = *lines_[serving_];
            if (!readable_[serving_] || line.idle()) continue;
            readable_[serving_] = line.receive();
            more |= readable_[serving_];
        }
        double time = monotonic_now();
        bool idle = true;
        for (serving_ = 0; serving_ < lines_.size(); ++serving_) {
            Line& line = *lines_[serving_];
            if (!readable_[serving_]) drained_at_[serving_] = time;
            // What is asked for may lie unread in the socket, but not for ever if it is flooded.
            const bool due = time >= line.next_timer();
            if (due && (!readable_[serving_] || time >= drained_at_[serving_] + kDrain)) {
                line.expire(time);
            }
            if (!line.idle() && line.too_long() != 0) return;
            idle &= line.idle();
        }
        if (idle) return;
        time = monotonic_now();
        if (time >= until) return;
        if (!more) wait(std::min(next_timer(), until) - time);
    }
}

void UdpLoop::wait(double seconds) {
    ++waits_;
    sockets_.clear();
    for (const Line* line : lines_) {
        short events = line->blocked() ? POLLIN | POLLOUT : POLLIN;
        for (const int number : line->numbers()) {
            // poll ignores a negative file number.
            sockets_.push_back({line->idle() ? -1 : number, events, 0});
            events = POLLIN;
        }
    }
    seconds = std::max(seconds, 0.0);
    timespec time;
    time.tv_sec = static_cast<time_t>(seconds);
    time.tv_nsec = static_cast<long>((seconds - std::floor(seconds)) * 1e9);
    // Interrupted or not, the caller looks at the clock.
    if (ppoll(sockets_.data(), sockets_.size(), &time, nullptr) <= 0) return;
    const std::size_t of_line = sockets_.size() / lines_.size();
    const double woken = monotonic_now();
    for (std::size_t i = 0; i < sockets_.size(); ++i) {
        if (sockets_[i].revents == 0) continue;
        // A line that can be written to is flushed when it has been read.
        readable_[i / of_line] = true;
        drained_at_[i / of_line] = woken;
    }
}

}  // namespace afflux::worker
