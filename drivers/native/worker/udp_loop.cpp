#include "worker/udp_loop.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace afflux::worker {
namespace {

// Reads for which a line's timers wait while its socket is read out: more than what a full one
// holds takes. A count, so that it is the same however slow the processor is.
constexpr std::size_t kDrainReads = 512;

}  // namespace

UdpLoop::UdpLoop(std::vector<Line*> lines) : lines_(std::move(lines)), reads_(lines_.size()) {}

double UdpLoop::next_timer() const {
    double next = std::numeric_limits<double>::infinity();
    for (const Line* line : lines_) next = std::min(next, line->next_timer());
    return next;
}

void UdpLoop::run(double until) {
    readable_.assign(lines_.size(), true);
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
            reads_[serving_] = readable_[serving_] ? reads_[serving_] + 1 : 0;
            // Answers may lie unread in the socket, but not for ever if it is flooded.
            const bool read_out = !readable_[serving_] || reads_[serving_] >= kDrainReads;
            if (read_out && time >= line.next_timer()) line.expire(time);
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
    for (std::size_t i = 0; i < sockets_.size(); ++i) {
        if (sockets_[i].revents == 0) continue;
        // A line that can be written to is flushed when it has been read.
        readable_[i / of_line] = true;
    }
}

}  // namespace afflux::worker
