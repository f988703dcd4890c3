// Many workers whose packets meet at the port of one aggregator, which is no faster than the port
// of one worker and has a shallow queue, in virtual time.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "tests/check.hpp"
#include "tests/worker_job.hpp"
#include "worker/join.hpp"
#include "worker/operation.hpp"

using namespace afflux;
using packet::Octets;
using packet::PacketBuffer;
using tests::Datagram;
using tests::WorkerJob;
using worker::Operation;

namespace {

#ifdef AFFLUX_SANITIZED
constexpr int kBefore = 0, kSums = 2;
#else
constexpr int kBefore = 6, kSums = 12;
#endif

constexpr unsigned kLanes = 5;
// Bytes of a datagram's headers on the wire.
constexpr std::size_t kHeaders = 42;

// The network. Times in seconds.
struct Links {
    unsigned ranks = 8;
    unsigned slots = 32;
    double gbit = 1.0;           // of each port
    std::size_t queue = 32'000;  // bytes that wait at the aggregator's port of the switch
    double delay = 20e-6;        // of a cable, with what is at its end
    double jitter = 10e-6;       // of a worker, at most
    double lost = 0;             // share of the packets to and from the aggregator
};

struct Port {
    double free_at = 0;

    double pass(double now, std::size_t bytes, double gbit) {
        free_at = std::max(free_at, now) + static_cast<double>(bytes + kHeaders) * 8e-9 / gbit;
        return free_at;
    }
    double waiting(double now, double gbit) const {
        return std::max(0.0, free_at - now) * gbit * 1e9 / 8;
    }
};

class Incast {
  public:
    explicit Incast(const Links& links)
        : links_(links), job_(links.ranks, kLanes, links.slots, links.slots), own_(links.ranks) {
        run<worker::Join>(
            [this](unsigned rank) { return std::make_unique<worker::Join>(*job_.sessions[rank]); });
    }

    // All ranks' sum of so many ones; returns how long it took.
    double all_reduce(std::size_t count) {
        std::vector<std::vector<std::int32_t>> elements(links_.ranks), results(links_.ranks);
        for (unsigned rank = 0; rank < links_.ranks; ++rank) {
            elements[rank].assign(count, static_cast<std::int32_t>(rank) + 1);
            results[rank].assign(count, 0);
        }
        const double started = now_;
        run<Operation>([&](unsigned rank) {
            const worker::Tensor tensor{arithmetic::Dtype::Int32,       arithmetic::Op::Sum,
                                        static_cast<int>(links_.ranks), count,
                                        elements[rank].data(),          results[rank].data()};
            return std::make_unique<Operation>(*job_.sessions[rank], tensor, 5);
        });
        const auto sum = static_cast<std::int32_t>(links_.ranks * (links_.ranks + 1) / 2);
        for (const auto& result : results) {
            CHECK(std::all_of(result.begin(), result.end(),
                              [sum](std::int32_t each) { return each == sum; }));
        }
        return now_ - started;
    }

    // The room that the packets of such a sum need at the aggregator's port.
    double least(std::size_t count) const {
        const std::size_t packets = (count + 64 * kLanes - 1) / (64 * kLanes);
        const std::size_t bytes = packets * (packet::datagram_bytes(kLanes) + kHeaders);
        return static_cast<double>(links_.ranks * bytes) * 8e-9 / links_.gbit;
    }

    std::size_t window(unsigned rank) const { return job_.sessions[rank]->window.size(); }

    unsigned long sent = 0, dropped = 0;

  private:
    struct Event {
        unsigned rank;
        bool at_engine, at_switch;
        Datagram datagram;
    };

    struct Outlet final : worker::PacketSink {
        void send(Octets datagram) override {
            sent.emplace_back(datagram.data, datagram.data + datagram.bytes);
        }
        std::vector<Datagram> sent;
    };

    bool lost() {
        return links_.lost > 0 && std::uniform_real_distribution<>()(draw_) < links_.lost;
    }

    void take_sent(unsigned rank, Outlet& outlet) {
        for (Datagram& datagram : outlet.sent) {
            const double leaves = own_[rank].pass(now_, datagram.size(), links_.gbit);
            ++sent;
            events_.emplace(leaves + links_.delay, Event{rank, false, true, std::move(datagram)});
        }
        outlet.sent.clear();
    }

    void at_switch(Event event) {
        const std::size_t bytes = event.datagram.size();
        if (incoming_.waiting(now_, links_.gbit) + static_cast<double>(bytes + kHeaders) >
                static_cast<double>(links_.queue) ||
            lost()) {
            ++dropped;
            return;
        }
        const double leaves = incoming_.pass(now_, bytes, links_.gbit);
        event.at_switch = false;
        event.at_engine = true;
        events_.emplace(leaves + links_.delay, std::move(event));
    }

    void at_engine(const Event& event) {
        job_.play(event.rank, event.datagram, [this](unsigned to, Datagram answer) {
            const double leaves = outgoing_.pass(now_, answer.size(), links_.gbit);
            if (lost()) return;
            const double late = std::uniform_real_distribution<>(0, links_.jitter)(draw_);
            events_.emplace(leaves + 2 * links_.delay + late,
                            Event{to, false, false, std::move(answer)});
        });
    }

    template <typename Dialogue, typename Make>
    void run(Make make) {
        events_.clear();
        std::vector<std::unique_ptr<Dialogue>> dialogues;
        std::vector<Outlet> outlets(links_.ranks);
        for (unsigned rank = 0; rank < links_.ranks; ++rank) {
            dialogues.push_back(make(rank));
            dialogues[rank]->open(now_, outlets[rank]);
            take_sent(rank, outlets[rank]);
        }
        const auto over = [&] {
            return std::all_of(dialogues.begin(), dialogues.end(),
                               [](const auto& each) { return each->done(); });
        };
        for (int step = 0; !over(); ++step) {
            CHECK(step < 20'000'000);
            unsigned first = 0;
            for (unsigned rank = 1; rank < links_.ranks; ++rank) {
                if (dialogues[rank]->next_timer() < dialogues[first]->next_timer()) first = rank;
            }
            const double timer = dialogues[first]->next_timer();
            if (events_.empty() || timer < events_.begin()->first) {
                now_ = std::max(now_, timer);
                dialogues[first]->expire(now_, outlets[first]);
                take_sent(first, outlets[first]);
                continue;
            }
            auto node = events_.extract(events_.begin());
            now_ = std::max(now_, node.key());
            Event& event = node.mapped();
            if (event.at_switch) {
                at_switch(std::move(event));
            } else if (event.at_engine) {
                at_engine(event);
            } else if (!dialogues[event.rank]->done()) {
                PacketBuffer buffer;
                std::memcpy(buffer.datagram(), event.datagram.data(), event.datagram.size());
                dialogues[event.rank]->receive(buffer, event.datagram.size(), now_,
                                               outlets[event.rank]);
                take_sent(event.rank, outlets[event.rank]);
            }
        }
    }

    Links links_;
    WorkerJob job_;
    std::mt19937_64 draw_{1};
    std::multimap<double, Event> events_;
    std::vector<Port> own_;
    Port incoming_, outgoing_;
    double now_ = 0;
};

// The time and losses of sums of 2**18 ones, once the windows have seen some.
struct Found {
    double of_limit;     // the aggregator's port's least time for their packets, by theirs
    double lost;         // share of the workers' packets
    std::size_t window;  // of the first worker
};

Found measured(const Links& links) {
    constexpr std::size_t kCount = std::size_t{1} << 18;
    Incast incast(links);
    for (int n = 0; n < kBefore; ++n) incast.all_reduce(kCount);
    const double sent = static_cast<double>(incast.sent);
    const double dropped = static_cast<double>(incast.dropped);
    double took = 0;
    for (int n = 0; n < kSums; ++n) took += incast.all_reduce(kCount);
    const Found found{
        kSums * incast.least(kCount) / took,
        (static_cast<double>(incast.dropped) - dropped) / (static_cast<double>(incast.sent) - sent),
        incast.window(0)};
    std::printf(
        "%2u workers, %3u slots, %.1f Gbit/s, %7zu bytes wait, %.1f %% lost by chance: "
        "%.2f of the limit, %.1f %% lost, window %zu\n",
        links.ranks, links.slots, links.gbit, links.queue, 100 * links.lost, found.of_limit,
        100 * found.lost, found.window);
    std::fflush(stdout);
    return found;
}

// Nothing is lost, and nothing waits for a window.
void test_a_queue_that_holds_all() {
    const Found found = measured({.queue = 1 << 20});
    CHECK(found.lost == 0);
    CHECK(found.of_limit > 0.98);
    CHECK(found.window == 32);
}

// Half a packet less for each that is lost would leave four times as many losses, and the port idle
// while these are found out.
[[maybe_unused]] void test_shallow_queues() {
    for (const Links& links : {Links{.gbit = 0.2}, Links{.ranks = 16, .queue = 64'000},
                               Links{.slots = 128}, Links{.ranks = 16, .slots = 128}}) {
        const Found found = measured(links);
        CHECK(found.lost < 0.02);
        CHECK(found.of_limit > 0.84);
    }
}

// Packets lost by cables do not make windows narrow.
[[maybe_unused]] void test_losses_by_chance() {
    const Found few = measured({.ranks = 4, .queue = 1 << 20, .lost = 0.01});
    CHECK(few.of_limit > 0.7);
    CHECK(few.window > 20);
    const Found many = measured({.ranks = 4, .queue = 1 << 20, .lost = 0.03});
    CHECK(many.of_limit > 0.4);
    CHECK(many.window > 8);
}

}  // namespace

int main() {
    test_a_queue_that_holds_all();
#ifndef AFFLUX_SANITIZED
    // One thread in virtual time, which sanitizers make a hundred times as long.
    test_shallow_queues();
    test_losses_by_chance();
#endif
}
