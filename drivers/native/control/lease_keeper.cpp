#include "control/lease_keeper.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "control/errors.hpp"
#include "control/line_socket.hpp"

namespace afflux::control {
namespace {

// In the time of a lease, so that three may fail.
constexpr int kRenewals = 4;
constexpr double kAgain = 1.0;   // seconds until one that failed is tried again
constexpr double kAnswer = 5.0;  // seconds for an answer

// These engines end with the process that has the control channel; a board goes on without it.
bool ends_with_its_process(const std::string& engine) {
    return engine == "soft" || engine == "rtl";
}

}  // namespace

LeaseKeeper::LeaseKeeper(std::vector<JobLease*> leases,
                         std::function<void(const std::string&)> lost)
    : leases_(std::move(leases)), lost_(std::move(lost)) {
    int least = std::numeric_limits<int>::max();
    for (const JobLease* each : leases_) {
        if (each->lease_s() > 0) least = std::min(least, each->lease_s());
    }
    every_s_ = least / static_cast<double>(kRenewals);
    wake_ = eventfd(0, EFD_CLOEXEC);
    thread_ = std::thread([this] { run(); });
}

void LeaseKeeper::stop() {
    if (!thread_.joinable()) return;
    stopping_ = true;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
    thread_.join();
    ::close(wake_);
}

std::vector<JobLease*> LeaseKeeper::wait(double until) const {
    std::vector<pollfd> numbers{{wake_, POLLIN, 0}};
    for (const JobLease* each : leases_) numbers.push_back({each->number(), POLLIN, 0});
    const double seconds = std::max(0.0, until - monotonic_now());
    ::poll(numbers.data(), numbers.size(),
           static_cast<int>(std::min(std::ceil(1e3 * seconds), 1e8)));
    std::vector<JobLease*> spoken;
    for (std::size_t i = 0; i < leases_.size(); ++i) {
        if (numbers[i + 1].revents != 0) spoken.push_back(leases_[i]);
    }
    return spoken;
}

void LeaseKeeper::run() {
    double due = monotonic_now() + every_s_;
    for (;;) {
        const std::vector<JobLease*> spoken = wait(due);
        const bool is_due = monotonic_now() >= due;
        for (JobLease* each : leases_) {
            if (stopping_) return;
            const bool speaks = std::find(spoken.begin(), spoken.end(), each) != spoken.end();
            const std::string over = look_after(*each, speaks, is_due);
            if (over.empty()) continue;
            if (!stopping_) lost_(over);
            return;
        }
        if (is_due || !silent_.empty()) {
            due = monotonic_now() + (silent_.empty() ? every_s_ : kAgain);
        }
    }
}

std::string LeaseKeeper::look_after(JobLease& lease, bool speaks, bool due) {
    try {
        if (speaks) {
            try {
                lease.heed();
            } catch (const Refused&) {
                throw;
            } catch (const Error&) {
                // Over another connection, at once: it tells whether the aggregator is there.
                due = true;
            }
        }
        if (due && lease.lease_s() > 0) {
            lease.renew(std::min(every_s_, kAnswer));
            silent_.erase(&lease);
        } else if (due) {
            // Without a lease only the connection held the job.
            return lease.number() >= 0 ? "" : "the job is over: its connection has ended";
        }
    } catch (const Refused& error) {
        return "the job is over: " + std::string(error.what());
    } catch (const NobodyListens& error) {
        return judge(lease, error.what(), true);
    } catch (const Error& error) {
        return judge(lease, error.what(), false);
    }
    return "";
}

std::string LeaseKeeper::judge(const JobLease& lease, const std::string& failure,
                               bool nobody_listens) {
    const double now = monotonic_now();
    const double since = silent_.try_emplace(&lease, now).first->second;
    if (!ends_with_its_process(lease.ticket().engine)) return "";
    if (nobody_listens) return "the job is over: the aggregator has ended: " + failure;
    if (now - since > lease.lease_s()) {
        return "the job is over: its lease could not be renewed for " +
               std::to_string(static_cast<int>(now - since)) + " s: " + failure;
    }
    return "";
}

}  // namespace afflux::control
