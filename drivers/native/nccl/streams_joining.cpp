#include "nccl/streams_joining.hpp"

#include <algorithm>
#include <stdexcept>

#include "control/errors.hpp"
#include "control/hexadecimal.hpp"
#include "control/libcrypto.hpp"
#include "control/line_codes.hpp"
#include "nccl/streams_aggregator.hpp"
#include "nccl/streams_worker.hpp"

namespace afflux::nccl {
namespace {

using control::monotonic_now;
using control::Object;

constexpr std::size_t kJobsMax = 8;
constexpr double kHeedEvery = 0.05;
// A message is under way for so many microseconds.
constexpr std::size_t kWay = 50, kOneHopLeast = 16 << 10, kOneHopMost = 1 << 20;

std::string name_of(std::size_t node) {
    return "node " + std::to_string(node);
}

// The streams of one node, while they are made.
class Joining {
  public:
    Joining(const StreamsPlan& plan, const std::vector<Handle>& nodes, int rank,
            const Listener& listener, double peer_s, double deadline,
            const std::function<void()>& heed)
        : plan_(plan),
          nodes_(nodes),
          rank_(static_cast<std::size_t>(rank)),
          listener_(listener),
          peer_s_(peer_s),
          deadline_(deadline),
          heed_(heed),
          links_(plan.jobs) {
        for (auto& each : links_) each.resize(nodes.size());
    }

    std::vector<std::unique_ptr<JobWorker>> workers() {
        for (std::size_t node = 0; node < rank_; ++node) {
            for (std::size_t job = 0; job < plan_.jobs; ++job) connect(node, job);
        }
        admit();
        for (std::size_t job = 0; plan_.aggregator && job < plan_.jobs; ++job) {
            aggregators_.push_back(
                connect_streams(*plan_.aggregator, plan_.key,
                                {mesh(job), static_cast<std::uint32_t>(nodes_.size()),
                                 static_cast<std::uint32_t>(rank_)},
                                deadline_, heed_));
        }
        std::vector<std::unique_ptr<JobWorker>> made;
        for (std::size_t job = 0; job < plan_.jobs; ++job) {
            std::vector<int> sockets;
            for (auto& each : links_[job]) sockets.push_back(each ? each->release() : -1);
            if (plan_.aggregator) sockets.push_back(aggregators_[job].release());
            made.push_back(std::make_unique<StreamsWorker>(
                static_cast<int>(rank_), sockets, nodes_.size(), plan_.one_hop,
                plan_.aggregator ? plan_.aggregator->text() : "", peer_s_));
        }
        return made;
    }

  private:
    void connect(std::size_t node, std::size_t job) {
        const std::string host = nodes_[node].listener.text();
        if (nodes_[node].listener.is_loopback() && !nodes_[rank_].listener.is_loopback()) {
            throw std::runtime_error(name_of(node) + " listens at " + host +
                                     ", where only its own host finds it: AFFLUX_INTERFACE needs "
                                     "an address of the network there");
        }
        try {
            Link link = Link::connect(nodes_[node], deadline_, heed_);
            link.send(Object()
                          .set("node", static_cast<std::int64_t>(rank_))
                          .set("job", static_cast<std::int64_t>(job)),
                      deadline_);
            links_[job][node] = std::move(link);
        } catch (const control::Error& error) {
            throw std::runtime_error("no stream to " + name_of(node) + " (" + host +
                                     "): " + error.what());
        }
    }

    void admit() {
        Door door(listener_);
        std::size_t missing = plan_.jobs * (nodes_.size() - 1 - rank_);
        while (missing != 0) {
            heed_();
            const double now = monotonic_now();
            if (now >= deadline_) throw std::runtime_error("timed out: " + waits());
            auto come = door.admit(std::min(now + kHeedEvery, deadline_));
            if (!come) continue;
            const std::int64_t node = come->second.integer("node").value_or(-1);
            const std::int64_t job = come->second.integer("job").value_or(-1);
            const bool there = node > static_cast<std::int64_t>(rank_) &&
                               node < static_cast<std::int64_t>(nodes_.size()) && job >= 0 &&
                               job < static_cast<std::int64_t>(plan_.jobs);
            auto* const place =
                there ? &links_[static_cast<std::size_t>(job)][static_cast<std::size_t>(node)]
                      : nullptr;
            if (place == nullptr || *place) {
                throw std::runtime_error("node " + std::to_string(node) + " (" +
                                         come->first.peer() +
                                         ") takes a stream that there is not, or that is taken");
            }
            *place = std::move(come->first);
            --missing;
        }
    }

    std::string waits() const {
        std::string names;
        for (std::size_t node = rank_ + 1; node < nodes_.size(); ++node) {
            const bool here = std::all_of(links_.begin(), links_.end(), [node](const auto& job) {
                return job[node].has_value();
            });
            if (!here) names += (names.empty() ? "" : ", ") + name_of(node);
        }
        return name_of(rank_) + " waits for streams of " + names;
    }

    // Its name at the aggregator, as the digest of a name has it.
    std::string mesh(std::size_t job) const {
        const auto digest = control::hmac_sha256(plan_.name, "job " + std::to_string(job));
        return {digest.begin(), digest.end()};
    }

    const StreamsPlan& plan_;
    const std::vector<Handle>& nodes_;
    const std::size_t rank_;
    const Listener& listener_;
    const double peer_s_, deadline_;
    const std::function<void()>& heed_;
    std::vector<std::vector<std::optional<Link>>> links_;  // by job and node
    std::vector<control::LineSocket> aggregators_;         // by job
};

}  // namespace

StreamsPlan StreamsPlan::made(const Interface& interface, const Settings& settings) {
    const auto bytes = static_cast<std::size_t>(std::max(interface.speed, 0)) * kWay / 8;
    StreamsPlan plan{.jobs = settings.jobs,
                     .one_hop = std::clamp(bytes, kOneHopLeast, kOneHopMost)};
    if (settings.aggregators.empty()) return plan;
    plan.aggregator = settings.aggregators.front();
    plan.key = streams_key(settings.secret);
    plan.name = control::new_nonce();
    return plan;
}

Object StreamsPlan::object() const {
    Object said;
    said.set("streams", static_cast<std::int64_t>(jobs))
        .set("one_hop", static_cast<std::int64_t>(one_hop));
    if (!aggregator) return said;
    return said.set("host", aggregator->host)
        .set("port", std::int64_t{aggregator->port})
        .set("key", key)
        .set("name", name);
}

StreamsPlan StreamsPlan::of(const Object& said) {
    const std::int64_t jobs = said.integer("streams").value_or(0);
    const std::int64_t one_hop = said.integer("one_hop").value_or(-1);
    const auto most = static_cast<std::int64_t>(kJobsMax);
    if (jobs < 1 || jobs > most || one_hop < 0) {
        throw std::runtime_error("node 0 does not sum by streams");
    }
    StreamsPlan plan{.jobs = static_cast<std::size_t>(jobs),
                     .one_hop = static_cast<std::size_t>(one_hop)};
    const auto host = said.text("host");
    if (!host) return plan;
    const std::int64_t port = said.integer("port").value_or(0);
    plan.key = said.text("key").value_or("");
    plan.name = said.text("name").value_or("");
    if (port < 1 || port > 65535 || !control::is_hexadecimal(plan.key, 32) || plan.name.empty()) {
        throw std::runtime_error("node 0 does not say how its aggregator is reached");
    }
    plan.aggregator = control::Place{*host, static_cast<std::uint16_t>(port)};
    return plan;
}

std::vector<std::unique_ptr<JobWorker>> join_streams(const StreamsPlan& plan,
                                                     const std::vector<Handle>& nodes, int rank,
                                                     const Listener& listener, double peer_s,
                                                     double deadline,
                                                     const std::function<void()>& heed) {
    return Joining(plan, nodes, rank, listener, peer_s, deadline, heed).workers();
}

}  // namespace afflux::nccl
