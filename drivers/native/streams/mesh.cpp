#include "streams/mesh.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "carriers/socket_lane.hpp"
#include "streams/unacknowledged.hpp"

namespace afflux::streams {
namespace {

using std::chrono::nanoseconds;

// While there is work, the clock is not read at each step.
constexpr unsigned kStepsBetweenLooks = 16;

void add(std::atomic<std::uint64_t>& counter, std::uint64_t more) {
    counter.store(counter.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

std::vector<int> all_of(const std::vector<std::vector<int>>& sockets) {
    std::vector<int> all;
    for (const std::vector<int>& lane : sockets) all.insert(all.end(), lane.begin(), lane.end());
    return all;
}

std::vector<int> ranks_in(Ranks ranks) {
    std::vector<int> all;
    for (int r = 0; r < arithmetic::kMaxRanks; ++r)
        if (has(ranks, r)) all.push_back(r);
    return all;
}

}  // namespace

Mesh::Mesh(int rank, const std::vector<std::vector<int>>& sockets, std::vector<int> names,
           int threads, std::size_t one_hop, Carriers carriers, std::size_t aggregated)
    : rank_(rank),
      sockets_(all_of(sockets)),
      names_(std::move(names)),
      members_(sockets.empty() ? 0 : sockets[0].size()),
      one_hop_(one_hop),
      aggregated_(members_ > names_.size() ? aggregated : kNoAggregator),
      process_(getpid()),
      caller_(ranks()),
      carriers_(std::move(carriers)) {
    if (sockets.empty()) throw std::invalid_argument("no streams");
    if ((members_ != names_.size() && members_ != names_.size() + 1) ||
        members_ > arithmetic::kMaxRanks)
        throw std::invalid_argument("not as many sockets as ranks");
    if (carriers_.empty())
        for (const auto& lane : sockets)
            carriers_.push_back(std::make_unique<carriers::SocketLane>(lane));
    if (carriers_.size() != sockets.size())
        throw std::invalid_argument("not as many carriers as lanes");
    // Thread n has lanes n, n + threads, …
    const std::size_t count = std::min(sockets.size(), static_cast<std::size_t>(threads));
    std::vector<std::vector<Driver::Lane>> shares(count);
    for (std::size_t lane = 0; lane < sockets.size(); ++lane) {
        if (carriers_[lane]->members() != members_)
            throw std::invalid_argument("not as many sockets as ranks");
        lanes_.push_back(std::make_unique<Exchange>(rank, *carriers_[lane], names_));
        shares[lane % count].push_back({lanes_.back().get(), carriers_[lane].get()});
    }
    driver_.emplace(std::move(shares[0]), wake_.fd(), waits_);
    for (std::size_t n = 1; n < count; ++n)
        threads_.push_back(std::make_unique<LaneThread>(std::move(shares[n]), wake_, waits_));
}

Mesh::~Mesh() {
    if (getpid() == process_) {
        pause();
        // All ends are there before one is waited for.
        for (const auto& each : carriers_) each->end();
        for (const auto& each : carriers_) each->close();
        return;
    }
    // The threads are those of the parent, and so are the carriers.
    for (auto& each : threads_) {
        each->forget();
        static_cast<void>(each.release());
    }
    for (auto& each : carriers_) static_cast<void>(each.release());
}

void Mesh::check_usable() const {
    if (getpid() != process_)
        throw Failed("the group belongs to the process that this one was forked from");
    if (broken_) {
        const std::string text = failure();
        throw Failed(text.empty() ? "an earlier operation has failed" : text);
    }
}

std::uint64_t Mesh::begin(const Request& request) {
    const std::scoped_lock lock(mutex_);
    check_usable();
    if (active_) throw std::logic_error("an operation is in progress");
    caller_.prepare(request, call_);
    own_ = signature_of(request);
    separate();
    start(layout_of(call_, ranks(), aggregated(), one_hop_), call_.bytes(), call_.reduction,
          nullptr);
    return operation_ + 1;
}

void Mesh::begin_piece(const Layout& layout, std::size_t bytes, const Reduction& reduction,
                       const Terms& terms, const Signature& signature) {
    const std::scoped_lock lock(mutex_);
    check_usable();
    call_ = {};
    call_.reduction = &reduction;
    own_ = signature;
    start(layout, bytes, &reduction, &terms);
}

void Mesh::start(const Layout& layout, std::size_t bytes, const Reduction* reduction,
                 const Terms* terms) {
    used_ = lanes_for(bytes, lanes_.size());
    for (std::size_t lane = 0; lane < used_; ++lane)
        lanes_[lane]->begin(cut(layout, static_cast<int>(members_), static_cast<int>(lane),
                                static_cast<int>(used_)),
                            reduction, terms, own_, operation_ + 1);
    // Of those of thread n.
    const std::size_t threads = threads_.size() + 1;
    const auto of = [&](std::size_t n) { return (used_ + threads - 1 - n) / threads; };
    driver_->use(of(0));
    for (std::size_t n = 1; n < threads; ++n) threads_[n - 1]->begin(of(n));
    active_ = true;
}

// Lets no part of a call overwrite another one that is still to be sent, and puts the own part of
// an all-gather where it belongs.
void Mesh::separate() {
    const bool gathers = call_.what == Collective::AllGather;
    const std::size_t bytes = call_.bytes();
    if (gathers) {
        std::byte* const own = call_.outputs[static_cast<std::size_t>(rank_)];
        if (own != call_.input && bytes) std::memmove(own, call_.input, bytes);
    } else if (call_.what == Collective::ReduceScatter) {
        bool apart = true;
        for (int r = 0; r < ranks(); ++r) {
            const std::byte* const input = call_.inputs[static_cast<std::size_t>(r)];
            if (!(r == rank_ && call_.tensor == input))
                apart = apart && !overlap(call_.tensor, bytes, input, bytes);
        }
        if (apart) return;
        spare_.resize(bytes);
        requested_ = std::exchange(call_.tensor, spare_.data());
    }
}

bool Mesh::advance(nanoseconds timeout, std::uint64_t operation) {
    const std::scoped_lock lock(mutex_);
    check_usable();
    if (operation != 0 && operation <= operation_) return true;
    if (!active_ || operation > operation_ + 1)
        throw std::logic_error("no operation is in progress");
    const bool waits = timeout > nanoseconds::zero();
    if (!waits) driver_->look();
    try {
        if (!run(Clock::now() + timeout, waits)) {
            pause();
            return false;
        }
    } catch (const Disagreement& error) {
        // All notice, as all compare the same calls.
        pause();
        for (const auto& each : carriers_) each->release();
        broken_ = true;
        set_failure(error.what());
        throw;
    } catch (const AggregatorEnded& error) {
        set_failure(error.what());
        keeps_results_ ? stop() : give_up();
        throw;
    } catch (const Failed& error) {
        set_failure(error.what());
        give_up();
        throw;
    } catch (...) {
        pause();
        for (const auto& each : carriers_) each->release();
        broken_ = true;
        throw;
    }
    finish();
    return true;
}

void Mesh::watch(std::vector<pollfd>& polled) {
    const std::scoped_lock lock(mutex_);
    if (active_ && !broken_) driver_->watch(polled);
}

// Works until the operation is over, or the deadline; then returns false.
bool Mesh::run(Clock::time_point deadline, bool waits) {
    for (auto& each : threads_) each->run();
    unsigned steps = 0;
    for (;;) {
        check_failure();
        const bool moved = driver_->progress();
        // If the ranks count lanes differently, the first one still has all calls.
        if (lanes_[0]->disagreed()) {
            const int other = names_[static_cast<std::size_t>(differing_now().front())];
            const int self = names_[static_cast<std::size_t>(rank_)];
            throw Disagreement("rank " + std::to_string(other) +
                               "'s call differs from that of rank " + std::to_string(self));
        }
        bool over = driver_->over();
        for (auto& each : threads_) over = each->over() && over;
        if (over) return true;
        if (!moved && !driver_->wait(deadline)) return false;
        // The time counts whatever has come: not all input moves something.
        // Without waiting all is done that can be: what is here already wakes nobody.
        const bool looks = !moved || (waits && ++steps % kStepsBetweenLooks == 0);
        if (looks && Clock::now() >= deadline) return false;
        if (!threads_.empty()) wake_.clear();
    }
}

void Mesh::pause() {
    for (auto& each : threads_) each->pause();
}

int Mesh::socket(std::size_t lane, int rank) const {
    return sockets_.all()[lane * members_ + static_cast<std::size_t>(rank)];
}

void Mesh::finish() {
    if (keeps_results_) {
        if (std::vector<Results> all = results_now(); !all.empty()) {
            kept_ = std::move(all);
            kept_of_ = operation_ + 1;
            kept_bytes_ = call_.bytes();
            kept_from_ = call_.tensor;
        }
    }
    for (std::size_t lane = 0; lane < used_; ++lane) lanes_[lane]->end();
    if (!spare_.empty()) {
        std::memcpy(requested_, spare_.data(), call_.bytes());
        std::vector<std::byte>().swap(spare_);
    }
    active_ = false;
    ++operation_;
    add(counters_.operations, 1);
    add(counters_.collectives[static_cast<std::size_t>(call_.what)], 1);
    const bool parts =
        call_.what == Collective::AllGather || call_.what == Collective::ReduceScatter;
    add(counters_.bytes, call_.bytes() * (parts ? static_cast<std::size_t>(ranks()) : 1));
    std::uint64_t sent = 0;
    BlockCounts blocks;
    for (const auto& lane : lanes_) {
        sent += lane->bytes_sent();
        blocks.present += lane->blocks().present;
        blocks.total += lane->blocks().total;
    }
    counters_.bytes_sent.store(sent, std::memory_order_relaxed);
    counters_.blocks_present.store(blocks.present, std::memory_order_relaxed);
    counters_.blocks_total.store(blocks.total, std::memory_order_relaxed);
}

std::uint64_t Mesh::in_progress() const {
    const std::scoped_lock lock(mutex_);
    return active_ ? operation_ + 1 : 0;
}

std::vector<std::uint64_t> Mesh::fingerprints() const {
    const std::scoped_lock lock(mutex_);
    std::vector<std::uint64_t> all;
    for (int r = 0; r < ranks(); ++r)
        all.push_back((r == rank_ ? own_ : lanes_[0]->signature(r)).fingerprint);
    return all;
}

std::vector<std::uint64_t> Mesh::histories() const {
    const std::scoped_lock lock(mutex_);
    std::vector<std::uint64_t> all;
    for (int r = 0; r < ranks(); ++r)
        all.push_back((r == rank_ ? own_ : lanes_[0]->signature(r)).history);
    return all;
}

std::vector<int> Mesh::differing_now() const {
    std::vector<int> all;
    for (int r = 0; r < ranks(); ++r)
        if (r != rank_ && !(lanes_[0]->signature(r) == own_)) all.push_back(r);
    return all;
}

std::vector<int> Mesh::differing() const {
    const std::scoped_lock lock(mutex_);
    return differing_now();
}

std::vector<int> Mesh::missing() const {
    return ranks_in(missing_members() & ranks_alone());
}

bool Mesh::waits_for_aggregator() const {
    return members_ > names_.size() && missing_members() == Ranks{1} << names_.size();
}

std::string Mesh::obstacle() const {
    for (std::size_t r = 0; r < members_; ++r) {
        const std::string text = unacknowledged_by(r);
        if (text.empty()) continue;
        const bool is_rank = r < names_.size();
        return (is_rank ? "rank " + std::to_string(names_[r]) : "the aggregator") + ": " + text;
    }
    return {};
}

std::string Mesh::aggregators_silence() const {
    return waits_for_aggregator() ? unacknowledged_by(names_.size()) : std::string();
}

std::string Mesh::unacknowledged_by(std::size_t member) const {
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
        std::string text = unacknowledged(socket(lane, static_cast<int>(member)));
        if (!text.empty()) return text;
    }
    return {};
}

Ranks Mesh::missing_members() const {
    Ranks all = 0;
    for (const auto& lane : lanes_) all |= lane->missing();
    return all;
}

Ranks Mesh::ranks_alone() const {
    return ~Ranks{0} >> (64 - names_.size());
}

std::vector<int> Mesh::ended() const {
    Ranks all = 0;
    for (const auto& lane : lanes_) all |= lane->ended() & ranks_alone();
    // Once the group has failed, ranks leave because of that.
    if (getpid() == process_ && failure().empty())
        for (int r = 0; r < ranks(); ++r) {
            if (r == rank_) continue;
            // Unread data may be in front of the end.
            pollfd one{socket(0, r), POLLRDHUP, 0};
            if (::poll(&one, 1, 0) > 0 && one.revents & (POLLRDHUP | POLLHUP | POLLERR))
                all |= Ranks{1} << r;
        }
    return ranks_in(all);
}

// ---- failure

void Mesh::set_failure(const std::string& text) {
    const std::scoped_lock lock(failure_mutex_);
    if (failure_.empty()) failure_ = text;
}

std::string Mesh::failure() const {
    const std::scoped_lock lock(failure_mutex_);
    return failure_;
}

// Lets the peers know, and ends the connections in the direction to them.
void Mesh::give_up() {
    pause();
    broken_ = true;
    for (const auto& lane : lanes_) lane->send_failure(failure());
    for (const auto& each : carriers_) each->end();
}

void Mesh::check_failure() {
    if (!failing_.load(std::memory_order_acquire)) return;
    throw Failed(failure());
}

void Mesh::fail(const std::string& text) {
    if (getpid() != process_) return;
    set_failure("rank " + std::to_string(names_[static_cast<std::size_t>(rank_)]) +
                " reports: " + text);
    failing_.store(true, std::memory_order_release);
    // A thread that is inside lets the peers know, or else this one.
    wake_.signal();
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock.owns_lock() && !broken_) give_up();
}

Statistics Mesh::statistics() const {
    const auto value = [](const std::atomic<std::uint64_t>& counter) {
        return counter.load(std::memory_order_relaxed);
    };
    Statistics all{};
    all.operations = value(counters_.operations);
    for (std::size_t i = 0; i < kCollectives; ++i)
        all.collectives[i] = value(counters_.collectives[i]);
    all.bytes = value(counters_.bytes);
    all.bytes_sent = value(counters_.bytes_sent);
    all.blocks_present = value(counters_.blocks_present);
    all.blocks_total = value(counters_.blocks_total);
    all.waits = value(waits_.waits);
    all.sleeps = value(waits_.sleeps);
    return all;
}

}  // namespace afflux::streams
