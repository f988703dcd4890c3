#include "shared/group.hpp"

#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "shared/gather.hpp"
#include "shared/one_pass.hpp"
#include "shared/scatter.hpp"
#include "shared/small_tensor.hpp"
#include "shared/staged.hpp"

namespace afflux::shared {
namespace {

void add(std::atomic<std::uint64_t>& counter, std::uint64_t more) {
    counter.store(counter.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

}  // namespace

Group::Group(std::shared_ptr<Segment> segment, int rank)
    : segment_(std::move(segment)),
      rank_(rank),
      process_(getpid()),
      phases_(*segment_, rank),
      caller_(segment_->ranks()) {
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

std::uint64_t Group::begin(const Request& request) {
    const std::scoped_lock lock(mutex_);
    check_usable();
    if (active_) throw std::logic_error("an operation is in progress");
    caller_.prepare(request, call_);
    CallSignature& own = signature(rank_);
    own = {request.count, request.fingerprint, request.history, kOrdinary,      0,
           request.what,  request.dtype,       Op::Sum,         std::uint8_t{0}};
    // A field that a collective does not use cannot make it differ.
    if (reduces(request.what)) own.op = request.op;
    if (request.what == Collective::Broadcast) own.root = static_cast<std::uint8_t>(request.root);
    const std::uint64_t position = ring_position_;
    try {
        start(own);
    } catch (...) {
        // Out of memory: as if it had not been called.
        ring_position_ = position;
        algorithm_ = nullptr;
        offered_ = nullptr;
        throw;
    }
    active_ = opening_ = true;
    phases_.arrive();
    return operation_ + 1;
}

// Whether all ranks reduce the whole of the tensor.
bool Group::is_small() const {
    const std::size_t most = kSmallBytesOfAll / static_cast<std::size_t>(ranks());
    return call_.bytes() <= std::min<std::size_t>(segment_->control().header.small_bytes, most);
}

// Does what comes before the ranks know each other's calls.
void Group::start(CallSignature& own) {
    offered_ = nullptr;
    const auto parity = static_cast<unsigned>(operation_ % 2);
    const std::uint64_t position = ring_position_;
    switch (call_.what) {
        case Collective::AllReduce:
        case Collective::Barrier:
            break;
        case Collective::Broadcast:
        case Collective::AllGather:
            algorithm_ =
                std::make_unique<GatherAlgorithm>(*segment_, rank_, parity, ring_position_, call_);
            add(ring_position_ == position ? counters_.small : counters_.staged, 1);
            return;
        case Collective::ReduceScatter:
            algorithm_ = std::make_unique<ScatterAlgorithm>(*segment_, rank_, parity,
                                                            ring_position_, call_, blocks_);
            add(ring_position_ == position ? counters_.small : counters_.staged, 1);
            return;
    }
    if (is_small()) {
        algorithm_ = std::make_unique<SmallAlgorithm>(*segment_, rank_, parity, call_, blocks_);
        add(counters_.small, 1);
        return;
    }
    offered_ = allocation_of(call_.tensor, call_.bytes());
    if (offered_) {
        own.offset =
            offered_->offset + static_cast<std::size_t>(call_.tensor - offered_->slice(rank_));
        own.extent = offered_->bytes;
        algorithm_ = nullptr;
        return;
    }
    auto staged =
        std::make_unique<StagedAlgorithm>(*segment_, rank_, ring_position_, call_, blocks_);
    staged->start();
    algorithm_ = std::move(staged);
}

void Group::compare() {
    const CallSignature& own = signature(rank_);
    for (int r = 0; r < ranks(); ++r) {
        if (signature(r).agrees(own)) continue;
        // Every rank notices, as all compare the same signatures; the first one's text stays.
        phases_.fail("the ranks disagree about the call");
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
        if (call_.what == Collective::AllReduce && !is_small()) add(counters_.staged, 1);
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

bool Group::advance(std::chrono::nanoseconds timeout, std::uint64_t operation) {
    const std::scoped_lock lock(mutex_);
    check_usable();
    if (operation != 0 && operation <= operation_) return true;
    if (!active_ || operation > operation_ + 1)
        throw std::logic_error("no operation is in progress");
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
    add(counters_.collectives[static_cast<std::size_t>(call_.what)], 1);
    const bool parts =
        call_.what == Collective::AllGather || call_.what == Collective::ReduceScatter;
    add(counters_.bytes, call_.bytes() * (parts ? static_cast<std::size_t>(ranks()) : 1));
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

std::vector<std::uint64_t> Group::histories() const {
    const std::scoped_lock lock(mutex_);
    std::vector<std::uint64_t> all;
    for (int r = 0; r < ranks(); ++r) all.push_back(signature(r).history);
    return all;
}

std::vector<int> Group::differing() const {
    const std::scoped_lock lock(mutex_);
    std::vector<int> all;
    for (int r = 0; r < ranks(); ++r)
        if (!signature(r).agrees(signature(rank_))) all.push_back(r);
    return all;
}

std::uint64_t Group::in_progress() const {
    const std::scoped_lock lock(mutex_);
    return active_ ? operation_ + 1 : 0;
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

void Group::release(const std::shared_ptr<Allocation>& allocation, bool discard) {
    if (getpid() != process_) return;
    const std::scoped_lock lock(allocations_mutex_);
    if (std::erase(allocations_, allocation) == 0) return;
    if (discard) allocation->discard(rank_);
    counters_.reachable.fetch_sub(allocation->bytes, std::memory_order_relaxed);
}

Statistics Group::statistics() const {
    const auto value = [](const std::atomic<std::uint64_t>& counter) {
        return counter.load(std::memory_order_relaxed);
    };
    const WaitCounts& waits = phases_.counts();
    Statistics all{};
    all.operations = value(counters_.operations);
    all.small = value(counters_.small);
    all.staged = value(counters_.staged);
    all.one_pass = value(counters_.one_pass);
    for (std::size_t i = 0; i < kCollectives; ++i)
        all.collectives[i] = value(counters_.collectives[i]);
    all.bytes = value(counters_.bytes);
    all.blocks_present = value(counters_.blocks_present);
    all.blocks_total = value(counters_.blocks_total);
    all.waits = value(waits.waits);
    all.sleeps = value(waits.sleeps);
    all.wakes = value(waits.wakes);
    all.reachable_bytes = value(counters_.reachable);
    return all;
}

}  // namespace afflux::shared
