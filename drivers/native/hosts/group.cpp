#include "hosts/group.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "sums/exact_sums.hpp"

namespace afflux::hosts {
namespace {

using std::chrono::nanoseconds;
using Clock = std::chrono::steady_clock;
using streams::kBlockBytes;

// Stripes of so many bytes are worth the streams of another rail.
constexpr std::size_t kStripeBytes = std::size_t{32} << 10;

std::size_t whole_blocks(std::size_t bytes) {
    return (bytes + kBlockBytes - 1) / kBlockBytes;
}

// All that must be the same at all ranks, in one number, as the local ranks compare it.
std::uint64_t digest_of(const streams::Signature& signature) {
    std::uint64_t digest = signature.fingerprint;
    for (const std::uint64_t each :
         {signature.count, static_cast<std::uint64_t>(signature.what) << 16 |
                               static_cast<std::uint64_t>(signature.dtype) << 8 |
                               static_cast<std::uint64_t>(signature.op)})
        digest = (digest ^ each) * 0x9E3779B97F4A7C15;
    return digest;
}

}  // namespace

int Places::ranks() const {
    std::size_t count = 0;
    for (const auto& ranks : hosts) count += ranks.size();
    return static_cast<int>(count);
}

int Places::rails() const {
    std::size_t least = hosts[0].size();
    for (const auto& ranks : hosts) least = std::min(least, ranks.size());
    return static_cast<int>(least);
}

Group::Group(Places places, std::shared_ptr<shared::Group> local,
             std::unique_ptr<streams::Mesh> rail, bool rounds)
    : places_(std::move(places)),
      ranks_(places_.ranks()),
      process_(getpid()),
      local_(std::move(local)),
      stage_(local_.get(), places_.index),
      rail_(std::move(rail)),
      rounds_(rounds),
      caller_(ranks_) {
    for (const auto& each : places_.hosts) sources_.push_back(static_cast<int>(each.size()));
    if ((rail_ != nullptr) != (places_.index < places_.rails()))
        throw std::invalid_argument("streams for a rank that is no rail, or none for a rail");
}

void Group::check_usable() const {
    // It would write into memory that the parent uses.
    if (getpid() != process_)
        throw Failed("the group belongs to the process that this one was forked from");
    if (broken_) {
        const std::string text = failure();
        throw Failed(text.empty() ? "an earlier operation has failed" : text);
    }
}

std::uint64_t Group::begin(const Request& request) {
    const std::scoped_lock lock(mutex_);
    check_usable();
    if (active_) throw std::logic_error("an operation is in progress");
    if (request.what != Collective::AllReduce && request.what != Collective::Barrier)
        throw std::invalid_argument("hosts with several ranks have all-reduces and barriers");
    const bool rounded = rounds_ && is_rounded(request.dtype) && reduces(request.what);
    divides_ = rounded && request.op == Op::Avg;
    Request whole = request;
    if (divides_) whole.op = Op::Sum;
    caller_.prepare(whole, call_);
    signature_ = streams::signature_of(whole);
    terms_.reset();
    if (reduces(request.what)) {
        const int scale = divides_ ? sums::average_scale(ranks_) : 0;
        terms_.emplace(sources_[static_cast<std::size_t>(places_.host)], request.dtype, request.op,
                       rounded ? std::optional(scale) : std::nullopt);
    }
    opened_.store(false, std::memory_order_relaxed);
    piece_ = 0;
    pieces_ = std::max<std::size_t>(1, (call_.bytes() + kStageBytes - 1) / kStageBytes);
    put(0);
    active_ = true;
    begin_phase();
    return operations_over_ + 1;
}

bool Group::advance(nanoseconds timeout, std::uint64_t operation) {
    const std::scoped_lock lock(mutex_);
    check_usable();
    if (operation != 0 && operation <= operations_over_) return true;
    if (!active_ || operation > operations_over_ + 1)
        throw std::logic_error("no operation is in progress");
    const auto deadline = Clock::now() + timeout;
    try {
        while (active_)
            if (!step(std::max(nanoseconds{0}, deadline - Clock::now()))) return false;
    } catch (const std::exception& error) {
        broken_ = true;
        // The others of the host, and other hosts.
        if (local_) local_->fail(error.what());
        if (rail_) rail_->fail(error.what());
        throw;
    }
    return true;
}

// Goes on to the end of a phase or of an exchange; returns false if that takes longer.
bool Group::step(nanoseconds timeout) {
    if (doing_ == Doing::Phase) {
        if (phase_ && !local_->advance(timeout, phase_)) return false;
        phase_ = 0;
        opened_.store(true, std::memory_order_relaxed);
        const std::size_t before = piece_;
        if (before < pieces_) begin_exchange();
        if (before > 0) take(before - 1);
        if (before + 1 < pieces_) put(before + 1);
        if (before == pieces_) {
            active_ = false;
            ++operations_over_;
            bytes_ += call_.bytes();
        }
        doing_ = Doing::Exchange;
        return true;
    }
    if (exchanging_ && !rail_->advance(timeout)) return false;
    exchanging_ = false;
    ++piece_;
    begin_phase();
    return true;
}

void Group::begin_phase() {
    doing_ = Doing::Phase;
    phase_ = 0;
    if (!local_) return;
    Request barrier;
    barrier.what = Collective::Barrier;
    barrier.fingerprint = digest_of(signature_);
    barrier.history = signature_.history;
    phase_ = local_->begin(barrier);
}

void Group::begin_exchange() {
    const std::size_t blocks = whole_blocks(bytes_of(piece_));
    exchanging_ = takes_part(blocks);
    if (!exchanging_) return;
    const int rails =
        blocks * kBlockBytes < kStripeBytes * static_cast<std::size_t>(places_.rails())
            ? 1
            : places_.rails();
    const Share stripe = share_of(blocks, places_.index, rails);
    const std::size_t first = stripe.first * kBlockBytes;
    const std::size_t bytes = (stripe.last - stripe.first) * kBlockBytes;
    if (!call_.reduction) {
        Request barrier;
        barrier.what = Collective::Barrier;
        barrier.fingerprint = signature_.fingerprint;
        barrier.history = signature_.history;
        rail_->begin(barrier);
        return;
    }
    signature_.stripe = static_cast<std::uint32_t>(stripe.last - stripe.first);
    rail_->begin_piece(streams::layout_of_hosts(stage_.first(piece_) + first, Stage::apart(),
                                                stage_.result(piece_) + first, bytes, sources_,
                                                rail_->aggregated(), rail_->one_hop()),
                       bytes, *call_.reduction, *terms_, signature_);
}

// Whether this rank is a rail for a piece of so many blocks: of small ones the first alone.
bool Group::takes_part(std::size_t blocks) const {
    if (!rail_) return false;
    const auto rails = static_cast<std::size_t>(places_.rails());
    return places_.index == 0 || blocks * kBlockBytes >= kStripeBytes * rails;
}

std::size_t Group::bytes_of(std::size_t piece) const {
    return std::min(call_.bytes() - piece * kStageBytes, kStageBytes);
}

void Group::put(std::size_t piece) {
    const std::size_t bytes = bytes_of(piece), end = whole_blocks(bytes) * kBlockBytes;
    if (!bytes) return;
    std::byte* const to = stage_.own(piece);
    std::memcpy(to, call_.tensor + piece * kStageBytes, bytes);
    std::memset(to + bytes, 0, end - bytes);
}

void Group::take(std::size_t piece) {
    const std::size_t bytes = bytes_of(piece);
    if (!bytes) return;
    std::byte* const to = call_.tensor + piece * kStageBytes;
    std::memcpy(to, stage_.result(piece), bytes);
    if (divides_)
        sums::divide(static_cast<sums::Dtype>(signature_.dtype), ranks_,
                     bytes / call_.element_bytes, to);
}

std::uint64_t Group::in_progress() const {
    const std::scoped_lock lock(mutex_);
    return active_ ? operations_over_ + 1 : 0;
}

// ---- ranks by their numbers in the group

std::vector<int> Group::of_local(const std::vector<int>& local) const {
    std::vector<int> all;
    for (const int each : local) all.push_back(places_.own()[static_cast<std::size_t>(each)]);
    return all;
}

std::vector<int> Group::of_hosts(const std::vector<int>& hosts) const {
    std::vector<int> all;
    for (const int host : hosts) {
        const auto& ranks = places_.hosts[static_cast<std::size_t>(host)];
        all.insert(all.end(), ranks.begin(), ranks.end());
    }
    return all;
}

std::vector<std::uint64_t> Group::fingerprints() const {
    // Of a rank that is known to differ there is no more than that.
    std::vector<std::uint64_t> all(static_cast<std::size_t>(ranks_), signature_.fingerprint);
    for (const int each : differing()) all[static_cast<std::size_t>(each)] ^= 1;
    return all;
}

std::vector<std::uint64_t> Group::histories() const {
    return std::vector<std::uint64_t>(static_cast<std::size_t>(ranks_), signature_.history);
}

std::vector<int> Group::differing() const {
    std::vector<int> all;
    if (local_) all = of_local(local_->differing());
    if (rail_) {
        const std::vector<int> more = of_hosts(rail_->differing());
        all.insert(all.end(), more.begin(), more.end());
    }
    std::sort(all.begin(), all.end());
    return all;
}

std::vector<int> Group::missing() const {
    // Later, others of the host are late because they wait for other hosts.
    if (local_ && !opened_.load(std::memory_order_relaxed)) return of_local(local_->missing());
    return rail_ ? of_hosts(rail_->missing()) : std::vector<int>{};
}

std::vector<int> Group::ended() const {
    std::vector<int> all;
    if (local_) all = of_local(local_->ended());
    if (rail_)
        // The rail itself, of whose host nothing more is known.
        for (const int host : rail_->ended()) {
            const auto& ranks = places_.hosts[static_cast<std::size_t>(host)];
            all.push_back(ranks[static_cast<std::size_t>(places_.index)]);
        }
    return all;
}

void Group::fail(const std::string& text) {
    if (local_) local_->fail(text);
    if (rail_) rail_->fail(text);
}

std::string Group::failure() const {
    std::string text;
    if (local_) text = local_->failure();
    if (text.empty() && rail_) text = rail_->failure();
    return text;
}

}  // namespace afflux::hosts
