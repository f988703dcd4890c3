#include "nccl/change.hpp"

#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <span>
#include <stdexcept>

#include "control/errors.hpp"
#include "control/hexadecimal.hpp"
#include "nccl/progress.hpp"
#include "nccl/roll_call.hpp"
#include "nccl/streams_joining.hpp"

namespace afflux::nccl {
namespace {

using control::monotonic_now;
using control::Object;

constexpr int kLookMs = 50;
constexpr double kRelease = 0.5;

std::string text_of(const Handle& handle) {
    return control::hexadecimal(std::span(reinterpret_cast<const char*>(&handle), sizeof handle));
}

Handle handle_of(const Object& said, const std::string& name) {
    const std::string text = said.text("handle").value_or("");
    Handle handle{};
    if (!control::is_hexadecimal(text, 2 * sizeof handle)) {
        throw std::runtime_error(name + " does not say where it listens");
    }
    const std::string octets = control::octets_of(text);
    std::memcpy(&handle, octets.data(), sizeof handle);
    return handle;
}

std::string text_of(const std::vector<std::uint64_t>& numbers) {
    std::string text;
    for (const std::uint64_t each : numbers) {
        if (!text.empty()) text += ',';
        text += std::to_string(each);
    }
    return text;
}

std::vector<std::uint64_t> numbers_in(const Object& said, std::size_t jobs,
                                      const std::string& name) {
    const std::string text = said.text("over").value_or("");
    std::vector<std::uint64_t> numbers;
    const char* const end = text.data() + text.size();
    for (const char* at = text.data(); at < end; ++at) {
        at = std::from_chars(at, end, numbers.emplace_back()).ptr;
    }
    if (numbers.size() != jobs || text != text_of(numbers)) {
        throw std::runtime_error(name + " does not say which operations are over");
    }
    return numbers;
}

}  // namespace

Change::Change(Formed& formed, const Interface& interface, const Settings& settings,
               std::string why, std::vector<std::uint64_t> over,
               std::map<int, control::Object> said, ProgressThread& progress)
    : formed_(formed),
      interface_(interface),
      settings_(settings),
      why_(std::move(why)),
      over_(std::move(over)),
      said_(std::move(said)),
      progress_(progress),
      deadline_(monotonic_now() + kSteps * settings.connect_s + (formed.rank == 0 ? 0 : kLonger)),
      thread_([this] { run(); }) {
    pthread_setname_np(thread_.native_handle(), "afflux-change");
}

Change::~Change() {
    cancel("the communicator is closed");
    thread_.join();
}

void Change::cancel(const std::string& why) {
    const std::scoped_lock alone(mutex_);
    if (cancelled_.empty()) cancelled_ = why;
}

void Change::check_cancelled() {
    const std::scoped_lock alone(mutex_);
    if (!cancelled_.empty()) throw std::runtime_error(cancelled_);
}

Change::Made Change::take() {
    if (!failure_.empty()) throw std::runtime_error(failure_);
    return std::move(made_);
}

void Change::run() {
    try {
        formed_.rank == 0 ? lead() : follow();
    } catch (const std::exception& error) {
        failure_ = error.what();
        RollCall(formed_.peers).fail(failure_);
    }
    over_now_.store(true, std::memory_order_release);
    progress_.wake();
    release();
}

// The aggregator need not know, if it is there at all.
void Change::release() {
    formed_.keeper.reset();
    for (const auto& each : formed_.leases) {
        try {
            each->close(kRelease);
        } catch (const control::Error&) {
            // It ends with the connection in any case.
        }
    }
    formed_.leases.clear();
}

// The next message of a node, other than that which all hear.
Object Change::next(Peer& peer) {
    try {
        for (;;) {
            check_cancelled();
            if (const std::optional<Object> said = peer.link.take()) {
                if (const auto failed = said->text("failed")) throw std::runtime_error(*failed);
                if (said->has("closed") || said->has("closing")) {
                    throw std::runtime_error(why_ + ", and " + peer.name +
                                             " has closed the communicator");
                }
                if (formed_.rank != 0 && said->has("changing")) continue;
                return *said;
            }
            if (monotonic_now() >= deadline_) {
                throw std::runtime_error("timed out: " + peer.name +
                                         " does not go on without the aggregator");
            }
            pollfd waiting{peer.link.number(), POLLIN, 0};
            ::poll(&waiting, 1, kLookMs);
        }
    } catch (const control::Unreachable& error) {
        throw std::runtime_error(peer.name + " has gone: " + error.what());
    }
}

std::vector<std::uint64_t> Change::least_over(const std::vector<Object>& said) const {
    std::vector<std::uint64_t> least = over_, most = over_;
    for (std::size_t i = 0; i < said.size(); ++i) {
        const auto theirs = numbers_in(said[i], over_.size(), formed_.peers[i].name);
        for (std::size_t job = 0; job < least.size(); ++job) {
            least[job] = std::min(least[job], theirs[job]);
            most[job] = std::max(most[job], theirs[job]);
        }
    }
    for (std::size_t job = 0; job < least.size(); ++job) {
        // It cannot be: an operation is over when all have called it.
        if (most[job] > least[job] + 1) {
            throw std::runtime_error("nodes are more than one operation apart: " + text_of(least) +
                                     " and " + text_of(most));
        }
    }
    return least;
}

void Change::lead() {
    const Listener listener(interface_);
    for (Peer& each : formed_.peers) each.link.send(Object().set("changing", why_), deadline_);
    std::vector<Object> said;
    std::vector<Handle> nodes(formed_.peers.size() + 1);
    nodes[0] = listener.handle();
    for (Peer& each : formed_.peers) {
        const auto earlier = said_.find(each.rank);
        said.push_back(earlier != said_.end() ? earlier->second : next(each));
        nodes.at(static_cast<std::size_t>(each.rank)) = handle_of(said.back(), each.name);
    }
    made_.over = least_over(said);
    StreamsPlan plan = StreamsPlan::made(interface_, settings_);
    plan.jobs = over_.size();
    plan.aggregator.reset();
    for (Peer& each : formed_.peers) {
        each.link.send(plan.object().set("over", text_of(made_.over)), deadline_);
        for (const Handle& handle : nodes) {
            each.link.send(Object().set("handle", text_of(handle)), deadline_);
        }
    }
    RollCall roll(formed_.peers);
    made_.workers =
        join_streams(plan, nodes, 0, listener, settings_.peer_s, deadline_, [this, &roll] {
            check_cancelled();
            roll.heed();
        });
    roll.confirm(deadline_, [this] { check_cancelled(); });
    check_cancelled();
    roll.go();
}

void Change::follow() {
    Peer& first = formed_.peers.front();
    const Listener listener(interface_);
    first.link.send(Object()
                        .set("changing", why_)
                        .set("over", text_of(over_))
                        .set("handle", text_of(listener.handle())),
                    deadline_);
    const Object said = next(first);
    const StreamsPlan plan = StreamsPlan::of(said);
    made_.over = numbers_in(said, over_.size(), first.name);
    std::vector<Handle> nodes;
    while (nodes.size() < static_cast<std::size_t>(formed_.ranks)) {
        nodes.push_back(handle_of(next(first), first.name));
    }
    const auto heed = [this, &first] {
        check_cancelled();
        const std::optional<Object> told = first.link.take();
        if (told) throw std::runtime_error(told->text("failed").value_or("node 0 speaks"));
    };
    made_.workers =
        join_streams(plan, nodes, formed_.rank, listener, settings_.peer_s, deadline_, heed);
    first.link.send(Object().set("joined", true), deadline_);
    next(first);
}

}  // namespace afflux::nccl
