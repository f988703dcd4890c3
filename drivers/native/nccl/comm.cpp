#include "nccl/comm.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <thread>

#include "control/errors.hpp"
#include "nccl/log.hpp"
#include "nccl/progress.hpp"

namespace afflux::nccl {
namespace {

using control::monotonic_now;
using control::Object;

constexpr std::uint64_t kNobodyCloses = std::numeric_limits<std::uint64_t>::max();
constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kTell = 0.5;  // seconds for the kernel to take a line; it does so at once
// Seconds for an aggregator to confirm that a job is closed; the second if something has failed, as
// it may be that.
constexpr double kCloseAnswer = 2, kCloseAnswerOfFailed = 0.5;

}  // namespace

Comm::Comm(Formed formed, const Interface& interface, ProgressThread& progress,
           const Settings& settings)
    : formed_(std::move(formed)),
      progress_(progress),
      interface_(interface),
      settings_(settings),
      running_(formed_.workers.size()),
      over_of_(formed_.workers.size()),
      again_(formed_.workers.size()) {
    // Node 0 alone may name one.
    const bool aggregated = std::any_of(formed_.workers.begin(), formed_.workers.end(),
                                        [](const auto& each) { return each->engine() != "mesh"; });
    if (aggregated && !settings.required) kept_.resize(running_.size());
}

Comm::~Comm() = default;

std::string Comm::failure() const {
    const std::scoped_lock alone(mutex_);
    return failure_;
}

Request* Comm::post(void* send, void* receive, const Reduction& reduction, bool clear) {
    if (failed_.load(std::memory_order_acquire)) throw std::runtime_error(failure());
    Request* const request = ring_.free();
    if (request == nullptr) return nullptr;
    request->comm = this;
    request->send = static_cast<std::byte*>(send);
    request->reduction = reduction;
    request->reduction.elements = receive;
    request->bytes = reduction.count * arithmetic::size_of(reduction.dtype);
    request->clear = clear && send != receive;
    ring_.post(*request);
    progress_.notice(progress_if_free());
    return request;
}

double Comm::progress_if_free() {
    const std::unique_lock alone(progress_mutex_, std::try_to_lock);
    const double now = monotonic_now();
    polled_.store(now, std::memory_order_relaxed);
    if (alone.owns_lock()) progress(now);
    return now;
}

double Comm::progress(std::vector<pollfd>& polled) {
    const double now = monotonic_now();
    const double patience = polled_.load(std::memory_order_relaxed) + kPatience;
    if (now < patience) return patience;
    const std::scoped_lock alone(progress_mutex_);
    const double next = progress(now);
    watch(polled);
    return next;
}

bool Comm::test(Request& request, std::size_t& bytes) {
    if (request.state.load(std::memory_order_acquire) == Request::State::Posted) {
        // The sockets to wait for may be others now.
        progress_.notice(progress_if_free());
    }
    switch (request.state.load(std::memory_order_acquire)) {
        case Request::State::Posted:
            return false;
        case Request::State::Done:
            bytes = request.bytes;
            request.state.store(Request::State::Free, std::memory_order_release);
            return true;
        case Request::State::Failed:
            request.state.store(Request::State::Free, std::memory_order_release);
            throw std::runtime_error(failure());
        case Request::State::Free:
            break;
    }
    throw std::runtime_error("a request is tested that is over");
}

void Comm::forget(const Memory& memory) {
    const std::scoped_lock alone(progress_mutex_);
    const auto lies_there = [&memory](const Request* each) {
        return each != nullptr && (memory.holds(each->reduction.elements, each->bytes) ||
                                   memory.holds(each->send, each->bytes));
    };
    // Those that have only been posted come after one that is running.
    if (std::any_of(running_.begin(), running_.end(), lies_there) || !ring_.empty()) {
        fail("memory was deregistered while an operation was in flight there");
    }
}

double Comm::progress(double now) {
    if (failed_.load(std::memory_order_relaxed)) {
        fail("");
        return kNever;
    }
    double next = kNever;
    try {
        if (changes_) {
            if (!change_->is_over()) return kNever;
            end_change();
        }
        if (formed_.loss && !change_) {
            const std::string lost = formed_.loss->why();
            if (!lost.empty()) throw AggregatorGone(lost);
        }
        // The end of one job's operation lets those of others begin.
        do start_next();
        while (advance());
        for (std::size_t job = 0; job < running_.size(); ++job) {
            if (is_busy(job)) next = std::min(next, formed_.workers[job]->next_timer());
        }
        heed_peers(now);
        if (begun_ > last_) throw std::runtime_error(closed_by_ + " has closed the communicator");
    } catch (const AggregatorGone& error) {
        change(error.what());
        return kNever;
    } catch (const std::exception& error) {
        fail(error.what());
        return kNever;
    }
    return next;
}

// Returns whether an operation is over.
bool Comm::advance() {
    bool over = false;
    for (std::size_t job = 0; job < running_.size(); ++job) {
        if (!is_busy(job) || !formed_.workers[job]->advance()) continue;
        over = true;
        if (!again_[job]) {
            finish(job);
            continue;
        }
        again_[job] = false;
        if (running_[job] != nullptr) start(job);
    }
    return over;
}

// Operation n is job n modulo their number's, at every node.
void Comm::start_next() {
    while (!ring_.empty()) {
        const std::size_t job = begun_ % running_.size();
        if (!next_is_free()) return;
        Request& request = *ring_.take();
        ++begun_;
        running_[job] = &request;
        void* const elements = request.reduction.elements;
        if (elements != request.send) std::memcpy(elements, request.send, request.bytes);
        // The proxy's slot is the plugin's until the request is over. A shorter operation leaves
        // its end as it is, which would travel, and spoil the exponents of the last valid block.
        if (request.clear) std::memset(request.send, 0, request.bytes);
        if (!kept_.empty() && !change_) kept_[job].keep(over_of_[job] + 1, request.reduction);
        start(job);
    }
}

void Comm::start(std::size_t job) {
    formed_.workers[job]->begin(running_[job]->reduction);
}

void Comm::finish(std::size_t job) {
    Request& request = *running_[job];
    running_[job] = nullptr;
    ++over_;
    ++over_of_[job];
    // A full barrier: a GPU reads what has been written here.
    request.state.store(Request::State::Done, std::memory_order_seq_cst);
    say_passed();
}

void Comm::watch(std::vector<pollfd>& polled) const {
    if (failed_.load(std::memory_order_relaxed) || changes_) return;
    for (std::size_t job = 0; job < running_.size(); ++job) {
        if (is_busy(job)) formed_.workers[job]->watch(polled);
    }
    for (const Peer& each : formed_.peers) {
        if (!each.closed) polled.push_back({each.link.number(), POLLIN, 0});
    }
}

void Comm::heed_peers(double now) {
    // Not between any two packets: what they say can wait.
    if (now < next_heed_) return;
    next_heed_ = now + 1e-3;
    for (Peer& each : formed_.peers) {
        if (each.closed) continue;
        try {
            while (const std::optional<Object> said = each.link.take()) heed(each, *said);
        } catch (const control::Unreachable& error) {
            if (each.closed) continue;
            throw std::runtime_error(each.name + " has gone: " + error.what());
        }
    }
}

void Comm::heed(Peer& peer, const Object& said) {
    if (const auto why = said.text("failed")) {
        fail(*why, &peer);
        throw std::runtime_error(*why);
    }
    if (const auto why = said.text("changing")) {
        changing_[peer.rank] = said;
        throw AggregatorGone(*why);
    }
    const auto closed = said.integer("closed");
    const auto closing = said.integer("closing");
    if (!closed && !closing) return;
    closed_by_ = peer.name;
    last_ = std::min(last_, static_cast<std::uint64_t>(closed ? *closed : *closing));
    peer.closed = closed.has_value();
    passing_ = closing.has_value();
    say_passed();
}

// Node 0 may end the jobs when all others have the results of its operations.
void Comm::say_passed() {
    if (!passing_ || over_ < last_) return;
    passing_ = false;
    for (Peer& each : formed_.peers) {
        tell(each, Object().set("passed", true));
        each.closed = true;
    }
}

void Comm::tell(Peer& peer, const Object& message) {
    try {
        peer.link.send(message, monotonic_now() + kTell);
    } catch (const control::Error&) {
        // It has gone, which its end of the connection tells.
    }
}

void Comm::fail(const std::string& why, const Peer* told_by) {
    if (!failed_.load(std::memory_order_relaxed)) {
        const std::string own = "node " + std::to_string(formed_.rank) + ": " + why;
        const std::string text = told_by == nullptr ? own : why;
        {
            const std::scoped_lock alone(mutex_);
            failure_ = text;
        }
        failed_.store(true, std::memory_order_release);
        warn(text);
        for (const auto& each : formed_.workers) each->close(text);
        // While there is a change the connections are its own.
        if (changes_) {
            change_->cancel(text);
        } else {
            tell_failed(text, told_by);
        }
    }
    end_failed_change();
    for (Request*& each : running_) {
        if (each != nullptr) each->state.store(Request::State::Failed, std::memory_order_release);
        each = nullptr;
    }
    while (Request* const each = ring_.take()) {
        each->state.store(Request::State::Failed, std::memory_order_release);
    }
}

void Comm::tell_failed(const std::string& text, const Peer* told_by) {
    for (Peer& each : formed_.peers) {
        if (&each != told_by && !each.closed) tell(each, Object().set("failed", text));
    }
}

// A change that has come to its good end all the same: the others hear that this node has failed.
void Comm::end_failed_change() {
    if (!changes_ || !change_->is_over()) return;
    changes_ = false;
    try {
        for (const auto& each : change_->take().workers) each->close(failure());
    } catch (const std::exception&) {
        return;  // It has failed, which all have heard.
    }
    tell_failed(failure(), nullptr);
}

void Comm::change(const std::string& why) {
    const auto closed = std::find_if(formed_.peers.begin(), formed_.peers.end(),
                                     [](const Peer& each) { return each.closed; });
    if (kept_.empty() || change_) return fail(why);
    if (closed != formed_.peers.end() || last_ != kNobodyCloses) {
        return fail(why + ", and " + closed_by_ + " has closed the communicator");
    }
    warn("node " + std::to_string(formed_.rank) + ": " + why +
         "; the nodes go on over streams to each other");
    for (const auto& each : formed_.workers) each->leave_off();
    left_ = std::move(formed_.workers);
    formed_.workers.clear();
    try {
        change_ = std::make_unique<Change>(formed_, interface_, settings_, why, over_of_,
                                           std::move(changing_), progress_);
        changes_ = true;
    } catch (const std::exception& error) {
        // No memory, or no thread more.
        fail(why + ", and the nodes cannot go on without it: " + error.what());
    }
}

void Comm::end_change() {
    Change::Made made = change_->take();
    changes_ = false;
    formed_.workers = std::move(made.workers);
    // All others have left theirs, too.
    for (const auto& each : left_) each->close("");
    left_.clear();
    for (std::size_t job = 0; job < running_.size(); ++job) {
        again_[job] = over_of_[job] != made.over[job];
        Request* const running = running_[job];
        if (running != nullptr) kept_[job].restore(over_of_[job] + 1, running->reduction.elements);
        if (again_[job]) {
            formed_.workers[job]->begin(kept_[job].reduction(over_of_[job]));
        } else if (running != nullptr) {
            start(job);
        }
    }
}

bool Comm::rests() const {
    return !changes_ && std::find(again_.begin(), again_.end(), true) == again_.end();
}

// Others may need what this node has contributed last.
void Comm::await_change() {
    const double deadline = monotonic_now() + settings_.close_s + 3 * settings_.connect_s;
    while (!failed_ && !rests()) {
        if (monotonic_now() > deadline) return fail("closed while the nodes changed");
        progress(monotonic_now());
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

void Comm::close() {
    progress_.remove(*this);
    const std::scoped_lock alone(progress_mutex_);
    const bool busy = std::any_of(running_.begin(), running_.end(),
                                  [](const Request* each) { return each != nullptr; });
    if (busy || !ring_.empty()) fail("closed while an operation was in flight");
    await_change();
    change_.reset();
    if (formed_.keeper) formed_.keeper->stop();
    if (!failed_) {
        if (!formed_.leases.empty()) {
            wait_for_others();
        } else {
            for (Peer& each : formed_.peers)
                tell(each, Object().set("closed", static_cast<std::int64_t>(over_)));
        }
        std::string text = "node " + std::to_string(formed_.rank) + ": closed after " +
                           std::to_string(over_) + " operations";
        for (const auto& each : formed_.workers) text += ", " + each->statistics();
        inform(text);
    }
    for (const auto& each : formed_.workers) each->close("");
    for (const auto& each : formed_.leases) {
        try {
            each->close(failed_ ? kCloseAnswerOfFailed : kCloseAnswer);
        } catch (const control::Error& error) {
            // It ends with the connection in any case.
            inform(std::string("a job was not closed: ") + error.what());
        }
    }
    formed_.leases.clear();
}

// An aggregator may have results that other nodes still need, so node 0 waits for these.
void Comm::wait_for_others() {
    const double deadline = monotonic_now() + settings_.close_s;
    for (Peer& each : formed_.peers) {
        if (!each.closed) tell(each, Object().set("closing", static_cast<std::int64_t>(over_)));
    }
    for (Peer& each : formed_.peers) {
        try {
            while (!each.closed) {
                const Object said = each.link.receive(deadline);
                each.closed = said.has("passed") || said.has("closed") || said.has("failed");
            }
        } catch (const control::Error& error) {
            inform(each.name + " does not say that it has all results: " + error.what());
        }
    }
}

}  // namespace afflux::nccl
