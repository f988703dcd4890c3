#include "nccl/forming.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cmath>
#include <stdexcept>

#include "contract/wire.hpp"
#include "control/errors.hpp"
#include "nccl/packet_worker.hpp"
#include "nccl/roll_call.hpp"
#include "nccl/streams_joining.hpp"

namespace afflux::nccl {
namespace {

using control::monotonic_now;
using control::Object;
using control::Ticket;

constexpr int kTries = 4;
constexpr double kJobCloseAnswer = 2;  // seconds for an aggregator to confirm that a job is closed

// The seconds for one step that are left of all.
double left(double deadline, const Settings& settings) {
    const double rest = deadline - monotonic_now();
    if (rest <= 0) throw std::runtime_error("timed out: the communicator has not formed in time");
    return std::min(rest, settings.connect_s);
}

std::string host_name() {
    std::array<char, HOST_NAME_MAX + 1> name{};
    return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

unsigned own_lanes(const Settings& settings) {
    unsigned lanes = settings.lanes != 0 ? settings.lanes : wire::kLanesMax;
    if (settings.over_streams) return lanes;
    for (const control::Place& each : settings.aggregators) {
        lanes = std::min(lanes, lanes_to(each, settings.connect_s));
    }
    return lanes;
}

void close_all(std::vector<std::unique_ptr<control::JobLease>>& leases) {
    for (const auto& each : leases) {
        try {
            each->close(kJobCloseAnswer);
        } catch (const control::Error&) {
            // It ends with the connection in any case.
        }
    }
    leases.clear();
}

// Jobs of the same nodes at each aggregator, all with as many lanes.
std::vector<std::unique_ptr<control::JobLease>> create_jobs(control::JobWish wish,
                                                            const Settings& settings,
                                                            double deadline) {
    for (int attempt = 0; attempt < kTries; ++attempt) {
        std::vector<std::unique_ptr<control::JobLease>> leases;
        try {
            for (const control::Place& each : settings.aggregators) {
                leases.push_back(std::make_unique<control::JobLease>(each, settings.secret, wish,
                                                                     left(deadline, settings)));
            }
        } catch (...) {
            close_all(leases);
            throw;
        }
        unsigned granted = wish.lanes;
        for (const auto& each : leases) granted = std::min(granted, each->ticket().lanes);
        if (std::all_of(leases.begin(), leases.end(),
                        [granted](const auto& each) { return each->ticket().lanes == granted; })) {
            return leases;
        }
        // Again, with what all can give.
        close_all(leases);
        wish.lanes = granted;
    }
    throw control::Refused("the aggregators grant ever fewer lanes: now " +
                           std::to_string(wish.lanes));
}

// The workers of all jobs, which have joined them.
std::vector<std::unique_ptr<JobWorker>> joined(std::vector<std::vector<Ticket>> tickets, int rank,
                                               const Settings& settings, double deadline) {
    std::vector<std::unique_ptr<JobWorker>> workers;
    for (std::vector<Ticket>& each : tickets) {
        auto made =
            std::make_unique<PacketWorker>(std::move(each), static_cast<unsigned>(rank), settings);
        made->join(left(deadline, settings));
        workers.push_back(std::move(made));
    }
    return workers;
}

// Node 0 sends others to an aggregator.
void check_place(const control::Place& place, const Link& link) {
    if (!is_loopback(place.host) || link.is_within_host()) return;
    throw std::runtime_error("node 0 sends others to " + place.host +
                             ", where only its own host finds it: the aggregator needs an address "
                             "of the network");
}

Ticket ticket_in(const Object& said, const Link& link) {
    const std::optional<Ticket> ticket = Ticket::of(said);
    if (!ticket) throw std::runtime_error("node 0 has sent a ticket that is none");
    check_place(ticket->place, link);
    return *ticket;
}

std::string named(int rank, const Object& introduction, const std::string& address) {
    return "node " + std::to_string(rank) + " (" + introduction.text("host").value_or("?") + ", " +
           address + ")";
}

// Node 0's part.
class Forming {
  public:
    Forming(const std::vector<Handle>& nodes, const Listener& listener, const Interface& interface,
            const Settings& settings, const std::string& sizes, ProgressThread& progress)
        : nodes_(nodes),
          listener_(listener),
          interface_(interface),
          settings_(settings),
          sizes_(sizes),
          progress_(progress),
          deadline_(monotonic_now() + kSteps * settings.connect_s) {
        made_.ranks = static_cast<int>(nodes.size());
    }

    Formed form() {
        try {
            gather();
            if (settings_.over_streams) {
                join_streams();
            } else {
                join_jobs();
            }
            roll_.confirm(deadline_);
            left(deadline_, settings_);
        } catch (const std::exception& error) {
            const std::string text = error.what();
            roll_.fail(text);
            made_.keeper.reset();
            close_all(made_.leases);
            throw std::runtime_error(text);
        }
        roll_.go();
        return std::move(made_);
    }

  private:
    void tell(Peer& peer, const Object& message) { peer.link.send(message, deadline_); }

    void join_jobs() {
        lanes_ = std::min(lanes_, own_lanes(settings_));
        create();
        give_tickets();
        made_.workers = joined(std::move(tickets_), 0, settings_, deadline_);
        keep_leases();
    }

    void join_streams() {
        const StreamsPlan plan = StreamsPlan::made(interface_, settings_);
        for (Peer& each : made_.peers) tell(each, plan.object());
        made_.workers = nccl::join_streams(plan, nodes_, 0, listener_, settings_.peer_s, deadline_,
                                           [this] { roll_.heed(); });
    }

    // Also after a node has said that it cannot take part: those that come later hear why, too.
    void gather() {
        std::vector<bool> here(static_cast<std::size_t>(made_.ranks));
        here[0] = true;
        Door door(listener_);
        const double until = monotonic_now() + settings_.connect_s;
        while (made_.peers.size() + 1 < here.size()) {
            if (auto come = door.admit(until)) {
                introduce(std::move(come->first), come->second, here);
            } else {
                note("timed out: node 0 waits for " + missing(here) + " since " +
                     std::to_string(static_cast<int>(settings_.connect_s)) + " s");
                break;
            }
        }
        if (!failure_.empty()) throw std::runtime_error(failure_);
    }

    // The first failure counts.
    void note(const std::string& failure) {
        if (failure_.empty()) failure_ = failure;
    }

    void introduce(Link link, const Object& said, std::vector<bool>& here) {
        const std::int64_t rank = said.integer("rank").value_or(-1);
        const std::string name = named(static_cast<int>(rank), said, link.peer());
        if (rank <= 0 || rank >= made_.ranks || here[static_cast<std::size_t>(rank)]) {
            note(name + " takes a place that there is not, or that is taken");
            return;
        }
        if (const auto failed = said.text("failed")) {
            note(name + ": " + *failed);
        } else if (said.integer("ranks") != made_.ranks) {
            note(name + " is of a communicator of another size");
        } else if (said.boolean("streams") != settings_.over_streams) {
            note(name + " and node 0 do not agree on AFFLUX_AGGREGATOR: one has streams://");
        } else if (said.text("sizes") != sizes_) {
            note(
                name +
                " and node 0 do not agree on the sizes of the all-reduces that go through "
                "the aggregator (AFFLUX_NCCL_BYTES, AFFLUX_NCCL_TABLE, or the rate of the link): " +
                said.text("sizes").value_or("?") + " and " + sizes_);
        }
        // It may have less time for a step, and then gives up before.
        const double step = 1e-3 * static_cast<double>(said.integer("step_ms").value_or(0));
        deadline_ = std::min(deadline_, monotonic_now() + kSteps * step);
        lanes_ = std::min(lanes_, static_cast<unsigned>(said.integer("lanes").value_or(1)));
        here[static_cast<std::size_t>(rank)] = true;
        made_.peers.push_back({static_cast<int>(rank), std::move(link), name});
    }

    static std::string missing(const std::vector<bool>& here) {
        std::string names;
        for (std::size_t rank = 0; rank < here.size(); ++rank) {
            if (here[rank]) continue;
            names += (names.empty() ? "node " : ", node ") + std::to_string(rank);
        }
        return names;
    }

    // The jobs over which steps in flight are spread: the first must be had, more are welcome.
    void create() {
        control::JobWish wish{.workers = static_cast<unsigned>(made_.ranks),
                              .lanes = lanes_,
                              .slots = settings_.slots,
                              .lease_s = settings_.lease_s};
        for (unsigned job = 0; job < settings_.jobs; ++job) {
            try {
                take(create_jobs(wish, settings_, deadline_));
            } catch (const control::Refused&) {
                if (job == 0) throw;
                break;
            }
        }
    }

    void give_tickets() {
        const auto jobs = static_cast<std::int64_t>(tickets_.size());
        const auto each_has = static_cast<std::int64_t>(tickets_.front().size());
        for (Peer& peer : made_.peers) {
            tell(peer, Object().set("jobs", jobs).set("aggregators", each_has));
            for (const std::vector<Ticket>& job : tickets_) {
                for (const Ticket& ticket : job) tell(peer, ticket.object());
            }
        }
    }

    void take(std::vector<std::unique_ptr<control::JobLease>> leases) {
        std::vector<Ticket>& tickets = tickets_.emplace_back();
        for (auto& each : leases) {
            tickets.push_back(each->ticket());
            made_.leases.push_back(std::move(each));
        }
    }

    void keep_leases() {
        std::vector<control::JobLease*> leases;
        for (const auto& each : made_.leases) leases.push_back(each.get());
        if (leases.empty()) return;
        made_.loss = std::make_unique<Loss>();
        const auto lost = [loss = made_.loss.get(), &progress = progress_](const std::string& why) {
            loss->note(why);
            progress.wake();
        };
        made_.keeper = std::make_unique<control::LeaseKeeper>(std::move(leases), lost);
    }

    const std::vector<Handle>& nodes_;
    const Listener& listener_;
    const Interface& interface_;
    const Settings& settings_;
    const std::string& sizes_;
    ProgressThread& progress_;
    double deadline_;
    Formed made_{};
    RollCall roll_{made_.peers};
    unsigned lanes_ = wire::kLanesMax;
    std::string failure_;
    std::vector<std::vector<Ticket>> tickets_;  // by job and aggregator
};

Object heard(Link& link, double deadline) {
    Object said = link.receive(deadline);
    if (const auto failed = said.text("failed")) throw std::runtime_error(*failed);
    return said;
}

std::vector<std::vector<Ticket>> heard_tickets(Link& link, double deadline) {
    const Object sizes = heard(link, deadline);
    const std::int64_t jobs = sizes.integer("jobs").value_or(0);
    const std::int64_t aggregators = sizes.integer("aggregators").value_or(0);
    if (jobs < 1 || aggregators < 1) throw std::runtime_error("node 0 has sent no tickets");
    std::vector<std::vector<Ticket>> tickets;
    for (std::int64_t job = 0; job < jobs; ++job) {
        tickets.emplace_back();
        for (std::int64_t i = 0; i < aggregators; ++i) {
            tickets.back().push_back(ticket_in(heard(link, deadline), link));
        }
    }
    return tickets;
}

std::vector<std::unique_ptr<JobWorker>> joined_streams(Link& link, const std::vector<Handle>& nodes,
                                                       int rank, const Listener& listener,
                                                       double peer_s, double deadline) {
    const StreamsPlan plan = StreamsPlan::of(heard(link, deadline));
    if (plan.aggregator) check_place(*plan.aggregator, link);
    return join_streams(plan, nodes, rank, listener, peer_s, deadline, [&link] {
        const std::optional<Object> said = link.take();
        if (said) throw std::runtime_error(said->text("failed").value_or("node 0 speaks"));
    });
}

// The part of every other node.
Formed take_part(Link link, const std::vector<Handle>& nodes, int rank, const Listener& listener,
                 const Settings& settings, const std::string& sizes) {
    // Node 0 has begun before, as it has answered.
    const double later = monotonic_now() + kSteps * settings.connect_s + kLonger;
    Formed made{};
    made.rank = rank;
    made.ranks = static_cast<int>(nodes.size());
    const Object introduction = Object().set("rank", std::int64_t{rank}).set("host", host_name());
    unsigned lanes = 0;
    try {
        lanes = own_lanes(settings);
    } catch (const std::exception& error) {
        link.send(Object(introduction).set("failed", error.what()), later);
        throw;
    }
    link.send(Object(introduction)
                  .set("ranks", std::int64_t{made.ranks})
                  .set("streams", settings.over_streams)
                  .set("sizes", sizes)
                  .set("step_ms", static_cast<std::int64_t>(std::ceil(1e3 * settings.connect_s)))
                  .set("lanes", std::int64_t{lanes}),
              later);
    const auto attempt = [&link, later](const auto& action) {
        try {
            action();
        } catch (const std::exception& error) {
            try {
                link.send(Object().set("failed", error.what()), later);
            } catch (const control::Error&) {
                // Node 0 has gone; the first error says more.
            }
            throw;
        }
    };
    try {
        attempt([&] {
            made.workers = settings.over_streams
                               ? joined_streams(link, nodes, rank, listener, settings.peer_s, later)
                               : joined(heard_tickets(link, later), rank, settings, later);
        });
        link.send(Object().set("joined", true), later);
        heard(link, later);
    } catch (const control::Unreachable& error) {
        throw std::runtime_error("node 0 (" + link.peer() + "): " + error.what());
    }
    const std::string name = "node 0 (" + link.peer() + ")";
    made.peers.push_back({0, std::move(link), name});
    return made;
}

}  // namespace

Formed form(const std::vector<Handle>& nodes, int rank, const Listener& listener,
            const Interface& interface, const Settings& settings, const std::string& sizes,
            ProgressThread& progress) {
    // An aggregator of streams is a member of the mesh, too.
    const bool aggregated = settings.over_streams && !settings.aggregators.empty();
    const std::size_t most = aggregated ? wire::kWorkersMax - 1 : wire::kWorkersMax;
    if (nodes.empty() || nodes.size() > most) {
        throw std::runtime_error("a job has at most " + std::to_string(most) + " workers, not " +
                                 std::to_string(nodes.size()));
    }
    if (rank == 0) return Forming(nodes, listener, interface, settings, sizes, progress).form();
    return take_part(Link::connect(nodes[0], monotonic_now() + settings.connect_s), nodes, rank,
                     listener, settings, sizes);
}

}  // namespace afflux::nccl
