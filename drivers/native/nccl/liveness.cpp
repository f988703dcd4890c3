#include "nccl/liveness.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

namespace afflux::nccl {
namespace {

// After so long without a packet an aggregator is asked whether it is there, and then as often.
constexpr double kQuiet = 0.25;
// JOINs in a row without an answer, after which an aggregator is called silent: time alone does not
// tell, as this process may have been stopped meanwhile.
constexpr int kUnanswered = 4;

std::string seconds(double value) {
    std::array<char, 32> text;
    std::snprintf(text.data(), text.size(), "%.1f s", value);
    return text.data();
}

}  // namespace

std::string refused_because(std::uint32_t cause) {
    switch (static_cast<wire::Refusal>(cause)) {
        case wire::Refusal::Version:
            return "it speaks another version of the protocol: update Afflux there, or the board's "
                   "bitstream";
        case wire::Refusal::Job:
            return "it has no such job";
        case wire::Refusal::Key:
            return "the key is not the job's";
        case wire::Refusal::Worker:
            return "the job has no such worker";
        case wire::Refusal::Address:
            return "the job is running, and this worker has joined from another address";
    }
    return "cause " + std::to_string(cause);
}

void Liveness::begin(double now) {
    since_ = now;
    asked_ = 0;
}

double Liveness::silent_s(double now) const {
    return now - std::max(since_, session_.heard_at);
}

std::string Liveness::look(double now, double silence_s) {
    const double silent = silent_s(now);
    if (silent < kQuiet) {
        asked_ = 0;
        probe_.stop();
        return "";
    }
    const std::string peer = "the aggregator at " + ticket_.place.text();
    if (probe_.refused()) {
        return peer + " has ended: it does not answer since " + seconds(silent) +
               ", and its host refuses its port and that of its control channel, " +
               ticket_.control.text();
    }
    const auto cause = static_cast<wire::Refusal>(session_.refusal);
    if (silent >= kQuiet * (asked_ + 1)) {
        // A packet that is here already answers an earlier one.
        if (asked_ != 0) {
            if (cause == wire::Refusal::Job || cause == wire::Refusal::Key) {
                return peer + " has restarted, or has ended the job, and no longer knows job " +
                       std::to_string(ticket_.job) + ": " + refused_because(session_.refusal);
            }
            // Its answer is looked at next time: nothing waits here.
            if (line_.refused()) probe_.begin();
        }
        ++asked_;
        line_.probe_liveness();
    }
    if (asked_ < kUnanswered || silent < silence_s) return "";
    const std::string but = session_.refusal == 0
                                ? ""
                                : " but by a refusal (" + refused_because(session_.refusal) + ")";
    return "timed out: " + peer + " does not answer since " + seconds(silent) + but;
}

}  // namespace afflux::nccl
