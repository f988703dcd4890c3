#include "shared/phases.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "collectives/errors.hpp"
#include "shared/futex.hpp"

namespace afflux::shared {
namespace {

// How often a waiting rank checks that the others are alive, and so how late it notices that one
// is not.
constexpr std::chrono::milliseconds kLookAround{50};

// If the ranks run side by side, most waits are over within microseconds, and sleeping would cost
// more than that. If they do not, because others use the processors or the kernel has put two ranks
// on the same one, looking takes a processor from the very rank that is awaited. So a rank looks
// for as long as it pays.
constexpr std::chrono::microseconds kSpinMost{100};
constexpr std::chrono::microseconds kSpinLeast{2};

// The awaited rank may only be waiting for our processor. Yielding it costs less than sleeping and
// being woken, after which the kernel likes to put a rank beside the one that woke it. A rank
// yields so many times, and for so long, before it sleeps.
constexpr int kTurnsGiven = 16;
constexpr std::chrono::microseconds kGiveWayFor{100};

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

void increment(std::atomic<std::uint64_t>& counter) {
    // There is one writer, so no read-modify-write is needed.
    counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

}  // namespace

Phases::Phases(Segment& segment, int rank)
    : segment_(segment),
      gate_(segment.control().gate),
      rank_(rank),
      spin_(kSpinMost),
      looked_(Clock::now()) {}

void Phases::arrive() {
    const std::uint64_t phase = reached_.load(std::memory_order_relaxed) + 1;
    const auto target =
        static_cast<std::uint32_t>(phase * static_cast<std::uint64_t>(segment_.ranks()));
    // First the gate, then the note that this rank has arrived: if it ends in between, it still
    // counts as missing. Sequentially consistent with the sleepers' two steps: either they see this
    // arrival, or it sees them.
    const std::uint32_t arrived = gate_.arrived.fetch_add(1, std::memory_order_seq_cst) + 1;
    segment_.member(rank_).reached.store(phase, std::memory_order_release);
    reached_.store(phase, std::memory_order_relaxed);
    if (arrived == target && gate_.sleepers.load(std::memory_order_seq_cst) != 0) {
        increment(counts_.wakes);
        futex_wake(gate_.arrived);
    }
}

bool Phases::over() const {
    const std::uint64_t target =
        reached_.load(std::memory_order_relaxed) * static_cast<std::uint64_t>(segment_.ranks());
    const std::uint32_t arrived = gate_.arrived.load(std::memory_order_acquire);
    return static_cast<std::int32_t>(arrived - static_cast<std::uint32_t>(target)) >= 0;
}

bool Phases::spin(Clock::time_point start, Clock::time_point deadline) const {
    const Clock::time_point until = std::min(deadline, start + spin_);
    do {
        for (int i = 0; i < 64; ++i) {
            if (over()) return true;
            pause();
        }
    } while (Clock::now() < until);
    return over();
}

bool Phases::give_way(Clock::time_point deadline) const {
    const Clock::time_point until = std::min(deadline, Clock::now() + kGiveWayFor);
    do {
        for (int i = 0; i < kTurnsGiven; ++i) {
            sched_yield();
            if (over()) return true;
        }
    } while (Clock::now() < until);
    return false;
}

// How long to look next time: longer, if that was enough; hardly, if the awaited rank arrived as
// soon as it had our processor; the full time, if a little more of it would have been enough; and
// less, if nothing would have been.
void Phases::learn(Ended ended, std::chrono::nanoseconds waited) {
    if (ended == Ended::Looking)
        spin_ = std::min<std::chrono::nanoseconds>(2 * spin_, kSpinMost);
    else if (ended == Ended::GivingWay)
        spin_ = kSpinLeast;
    else if (waited <= kSpinMost + kGiveWayFor)
        spin_ = kSpinMost;
    else
        spin_ = std::max<std::chrono::nanoseconds>(spin_ / 2, kSpinLeast);
}

bool Phases::wait(Clock::time_point deadline) {
    if (over()) return true;
    increment(counts_.waits);
    const Clock::time_point start = Clock::now();
    if (may_spin_ && spin(start, deadline)) {
        learn(Ended::Looking, {});
        return true;
    }
    if (give_way(deadline)) {
        learn(Ended::GivingWay, {});
        return true;
    }
    for (;;) {
        const Clock::time_point now = Clock::now();
        // A phase that is over stays over, even if a rank has failed the group since.
        if (look_around(now)) return true;
        if (now >= deadline) return over();
        increment(counts_.sleeps);
        gate_.sleepers.fetch_add(1, std::memory_order_seq_cst);
        const std::uint32_t seen = gate_.arrived.load(std::memory_order_seq_cst);
        if (!over())
            futex_wait(gate_.arrived, seen,
                       std::min<std::chrono::nanoseconds>(deadline - now, kLookAround));
        gate_.sleepers.fetch_sub(1, std::memory_order_relaxed);
        if (over()) {
            learn(Ended::Sleeping, Clock::now() - start);
            return true;
        }
    }
}

bool Phases::look_around(Clock::time_point now) {
    if (failed()) {
        if (over()) return true;
        throw Failed(failure());
    }
    if (now - looked_ < kLookAround) return false;
    looked_ = now;
    std::string names;
    for (const int rank : missing())
        if (segment_.ended(rank)) names += (names.empty() ? "" : ", ") + segment_.name(rank);
    // A rank that arrived and then ended does not hold up this phase.
    if (over()) return true;
    if (names.empty()) return false;
    fail("the process of rank " + names + " has ended, or has left the group");
    throw Failed(failure());
}

void Phases::fail(const std::string& text) {
    Failure& failure = segment_.control().failure;
    FailureState none = FailureState::None;
    if (failure.state.compare_exchange_strong(none, FailureState::Claimed,
                                              std::memory_order_acq_rel)) {
        failure.rank = static_cast<std::uint32_t>(rank_);
        const std::size_t length = std::min(text.size(), sizeof(failure.text) - 1);
        std::memcpy(failure.text, text.data(), length);
        failure.text[length] = '\0';
        failure.state.store(FailureState::Written, std::memory_order_release);
    }
    futex_wake(gate_.arrived);
}

bool Phases::failed() const {
    return segment_.control().failure.state.load(std::memory_order_acquire) != FailureState::None;
}

std::string Phases::failure() const {
    const Failure& failure = segment_.control().failure;
    // The rank that claims it writes it at once, unless it ends in between.
    for (int i = 0; i < 1000; ++i) {
        const FailureState state = failure.state.load(std::memory_order_acquire);
        if (state == FailureState::None) return {};
        if (state == FailureState::Written)
            return "rank " + segment_.name(static_cast<int>(failure.rank)) +
                   " reports: " + failure.text;
        pause();
    }
    return "a rank has failed the group, and ended before it could give the reason";
}

std::vector<int> Phases::missing() const {
    std::vector<int> ranks;
    const std::uint64_t phase = reached_.load(std::memory_order_relaxed);
    for (int rank = 0; rank < segment_.ranks(); ++rank)
        if (segment_.member(rank).reached.load(std::memory_order_acquire) < phase)
            ranks.push_back(rank);
    return ranks;
}

}  // namespace afflux::shared
