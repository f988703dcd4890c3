#include "shared/group.hpp"

#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "shared/one_pass.hpp"
#include "shared/small_tensor.hpp"
#include "shared/staged.hpp"

namespace afflux::shared {
namespace {

void add(std::atomic<std::uint64_t>& counter, std::uint64_t more) {
    counter.store(counter.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

}  // namespace

Group::Group(std::shared_ptr<Segment> segment, int rank)
    : segment_(std::move(segment)), rank_(rank), process_(getpid()), phases_(*segment_, rank) {
    segment_->attach(rank);
}

Group::~Group() {
    if (getpid() == process_) segment_->detach(rank_);
}

void Group::check_usable() const {
    if (getpid() != process_)
        throw Failed("the group belongs to the process that this one was forked from");
    if (broken_)
        throw Failed(phases_.failed() ? phases_.failure() : "an earlier operation has failed");
}

const codec::Numbers& Group::numbers(codec::Dtype dtype, codec::Op op) {
    if (static_cast<unsigned>(dtype) > 3 || static_cast<unsigned>(op) > 3)
        throw std::invalid_argument("no dtype " + std::to_string(static_cast<int>(dtype)) +
                                    " or no reduction " + std::to_string(static_cast<int>(op)));
    auto& entry = numbers_[static_cast<std::size_t>(dtype) * 4 + static_cast<std::size_t>(op)];
    if (!entry) entry.emplace(ranks(), dtype, op);
    return *entry;
}

std::shared_ptr<Allocation> Group::allocation_of(const std::byte* data, std::size_t bytes) const {
    const std::scoped_lock lock(allocations_mutex_);
    for (const auto& allocation : allocations_) {
        const std::byte* const slice = allocation->slice(rank_);
        if (data >= slice && data + bytes <= slice + allocation->bytes) return allocation;
    }
    return nullptr;
}

CallSignature& Group::signature(int rank) const {
    return segment_->member(rank).signatures[operation_ % 2];
}

void Group::begin(void* data, std::size_t count, codec::Dtype dtype, codec::Op op,
                  std::uint64_t fingerprint) {
    const std::scoped_lock lock(mutex_);
    check_usable();
    if (active_) throw std::logic_error("an operation is in progress");
    call_ = {static_cast<std::byte*>(data), count, &numbers(dtype, op)};
    const std::size_t bytes = count * codec::size_of(dtype);
    const bool small = bytes <= segment_->control().header.small_bytes;
    offered_ = small ? nullptr : allocation_of(call_.data, bytes);
    CallSignature& own = signature(rank_);
    own = {count, fingerprint, kOrdinary, 0, dtype, op};
    if (small) {
        algorithm_ =
            std::make_unique<SmallAlgorithm>(*segment_, rank_, operation_ % 2, call_, blocks_);
        add(counters_.small, 1);
    } else if (offered_) {
        own.offset =
            offered_->offset + static_cast<std::size_t>(call_.data - offered_->slice(rank_));
        own.extent = offered_->bytes;
        algorithm_ = nullptr;
    } else {
        auto staged =
            std::make_unique<StagedAlgorithm>(*segment_, rank_, ring_position_, call_, blocks_);
        staged->start();
        algorithm_ = std::move(staged);
    }
    active_ = opening_ = true;
    phases_.arrive();
}

void Group::compare() {
    const CallSignature& own = signature(rank_);
    for (int r = 0; r < ranks(); ++r) {
        if (signature(r).agrees(own)) continue;
        // Every rank notices, as all compare the same signatures; the first one's text stays.
        phases_.fail("the ranks disagree about what to reduce");
        throw Disagreement("rank " + std::to_string(r) + "'s call differs from that of " + "rank " +
                           std::to_string(rank_));
    }
}

// Called when the opening phase is over: every rank knows all ranks' calls, and all choose the same
// algorithm. Returns whether the operation goes on in this phase.
bool Group::open() {
    compare();
    if (!spin_known_) {
        // Looking without sleeping helps only if the others run meanwhile.
        if (ranks() <= segment_->processors()) phases_.allow_spinning();
        spin_known_ = true;
    }
    opening_ = false;
    int offers = 0;
    bool same = true;
    for (int r = 0; r < ranks(); ++r) {
        offers += signature(r).offset != kOrdinary;
        same = same && signature(r).offset == signature(rank_).offset &&
               signature(r).extent == signature(rank_).extent;
    }
    if (offers == 0) {
        if (call_.count * call_.element_bytes() > segment_->control().header.small_bytes)
            add(counters_.staged, 1);
        return true;
    }
    if (same) {
        algorithm_ = std::make_unique<OnePassAlgorithm>(*segment_, rank_, offered_, call_);
        add(counters_.one_pass, 1);
        return true;
    }
    if (!algorithm_) {
        auto staged =
            std::make_unique<StagedAlgorithm>(*segment_, rank_, ring_position_, call_, blocks_);
        staged->start();
        algorithm_ = std::move(staged);
    }
    add(counters_.staged, 1);
    return false;
}

bool Group::advance(std::chrono::nanoseconds timeout) {
    const std::scoped_lock lock(mutex_);
    check_usable();
    if (!active_) throw std::logic_error("no operation is in progress");
    const auto deadline = Clock::now() + timeout;
    try {
        for (;;) {
            if (!went_ahead_ && algorithm_) algorithm_->ahead();
            went_ahead_ = true;
            if (!phases_.wait(deadline)) return false;
            if (opening_ && !open()) {
                // Some have copied their first batch in and some have not, which takes one phase
                // more.
            } else if (algorithm_->turn()) {
                break;
            }
            phases_.arrive();
            went_ahead_ = false;
        }
    } catch (...) {
        broken_ = true;
        throw;
    }
    finish();
    return true;
}

void Group::finish() {
    add(counters_.operations, 1);
    add(counters_.bytes, call_.count * call_.element_bytes());
    counters_.blocks_present.store(blocks_.present, std::memory_order_relaxed);
    counters_.blocks_total.store(blocks_.total, std::memory_order_relaxed);
    algorithm_ = nullptr;
    offered_ = nullptr;
    active_ = went_ahead_ = false;
    ++operation_;
}

std::vector<std::uint64_t> Group::fingerprints() const {
    const std::scoped_lock lock(mutex_);
    std::vector<std::uint64_t> all;
    for (int r = 0; r < ranks(); ++r) all.push_back(signature(r).fingerprint);
    return all;
}

std::vector<int> Group::missing() const {
    return phases_.missing();
}

std::vector<int> Group::ended() const {
    std::vector<int> all;
    for (int r = 0; r < ranks(); ++r)
        if (r != rank_ && segment_->ended(r)) all.push_back(r);
    return all;
}

void Group::fail(const std::string& text) {
    if (getpid() == process_) phases_.fail(text);
}

std::string Group::failure() const {
    return phases_.failure();
}

std::shared_ptr<Allocation> Group::allocate(std::size_t offset, std::size_t bytes) {
    if (getpid() != process_)
        throw Failed("the group belongs to the process that this one was forked from");
    std::shared_ptr<Allocation> allocation = segment_->allocate(offset, bytes);
    const std::scoped_lock lock(allocations_mutex_);
    allocations_.push_back(allocation);
    add(counters_.reachable, bytes);
    return allocation;
}

void Group::release(const std::shared_ptr<Allocation>& allocation) {
    if (getpid() != process_) return;
    const std::scoped_lock lock(allocations_mutex_);
    if (std::erase(allocations_, allocation) == 0) return;
    allocation->discard(rank_);
    counters_.reachable.fetch_sub(allocation->bytes, std::memory_order_relaxed);
}

Statistics Group::statistics() const {
    const auto value = [](const std::atomic<std::uint64_t>& counter) {
        return counter.load(std::memory_order_relaxed);
    };
    const WaitCounts& waits = phases_.counts();
    return {value(counters_.operations),   value(counters_.small),
            value(counters_.staged),       value(counters_.one_pass),
            value(counters_.bytes),        value(counters_.blocks_present),
            value(counters_.blocks_total), value(waits.waits),
            value(waits.sleeps),           value(waits.wakes),
            value(counters_.reachable)};
}

}  // namespace afflux::shared
