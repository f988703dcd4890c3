// Workers and an engine in virtual time, with packets lost and doubled: sums of integers are right
// at every rank. Under sanitizers, all that they touch is theirs. Other numbers and the protocol's
// details are tested elsewhere, against the golden model.
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "engine/soft_engine.hpp"
#include "tests/check.hpp"
#include "worker/join.hpp"
#include "worker/operation.hpp"

using namespace afflux;
using engine::Address;
using engine::SendQueue;
using engine::SoftEngine;
using packet::Endpoint;
using packet::Octets;
using packet::PacketBuffer;
using worker::Operation;
using worker::Session;

namespace {

using Datagram = std::vector<std::uint8_t>;

constexpr unsigned kRanks = 3, kLanes = 5, kSlots = 4, kCredit = 4;
constexpr wire::Key kKey = 77;
constexpr wire::Round kFirst = 0xFFFF'FFFD;
const Endpoint kHere{{2, 0, 10, 0, 0, 1}, 0x0A000001, 4700};

Endpoint endpoint_of(unsigned rank) {
    return {{}, 0x0A000100 + rank, static_cast<std::uint16_t>(5000 + rank)};
}

class Flights final : public worker::PacketSink {
  public:
    void send(Octets datagram) override {
        sent.emplace_back(datagram.data, datagram.data + datagram.bytes);
    }

    std::deque<Datagram> sent;
};

class Network {
  public:
    explicit Network(unsigned seed) : draw_(seed), engine_({.workers = kRanks, .lanes = kLanes}) {
        const auto set = [this](Address address, std::uint32_t value) {
            engine_.write(static_cast<std::uint32_t>(address), value);
        };
        set(Address::LocalMacLow, 0x0A000001);
        set(Address::LocalMacHigh, 0x0200);
        set(Address::LocalAddress, kHere.address);
        set(Address::LocalPort, kHere.port);
        set(Address::JobKeyLow, kKey);
        set(Address::JobWorkers, kRanks);
        set(Address::JobLanes, kLanes);
        set(Address::JobSlotCount, kSlots);
        set(Address::JobRound, kFirst);
        set(Address::JobCredit, kCredit);
        set(Address::JobCommand, static_cast<std::uint32_t>(registers::Command::Create));
        for (unsigned rank = 0; rank < kRanks; ++rank) {
            const worker::JobRun job{.number = 0,
                                     .key = kKey,
                                     .first_round = kFirst,
                                     .workers = kRanks,
                                     .lanes = kLanes,
                                     .slots = kSlots,
                                     .worker = static_cast<wire::Worker>(rank),
                                     .rank = rank,
                                     .ranks = kRanks,
                                     .credit = kCredit,
                                     .group_host = 0,
                                     .group_port = 0};
            sessions.push_back(std::make_unique<Session>(job, 1.0));
        }
        std::vector<std::unique_ptr<worker::Join>> joins;
        for (auto& session : sessions) joins.push_back(std::make_unique<worker::Join>(*session));
        run(joins);
    }

    // Lets the dialogues run to their end.
    template <typename Dialogue>
    void run(std::vector<std::unique_ptr<Dialogue>>& dialogues) {
        std::vector<Flights> outlets(kRanks);
        for (unsigned rank = 0; rank < kRanks; ++rank) dialogues[rank]->open(now_, outlets[rank]);
        for (int step = 0; step < 1'000'000; ++step) {
            bool over = true, moved = false;
            for (unsigned rank = 0; rank < kRanks; ++rank) {
                Dialogue& dialogue = *dialogues[rank];
                worker::Window& window = sessions[rank]->window;
                if (narrowing && draw_() % 8 == 0) window.limit(window.size() - 1);
                while (!outlets[rank].sent.empty()) {
                    const Datagram datagram = std::move(outlets[rank].sent.front());
                    outlets[rank].sent.pop_front();
                    for (unsigned copies = fate(); copies > 0; --copies) play(rank, datagram);
                    moved = true;
                }
                while (!inboxes_[rank].empty()) {
                    PacketBuffer buffer;
                    const Datagram datagram = std::move(inboxes_[rank].front());
                    inboxes_[rank].pop_front();
                    std::memcpy(buffer.datagram(), datagram.data(), datagram.size());
                    dialogue.receive(buffer, datagram.size(), now_, outlets[rank]);
                    moved = true;
                }
                over = over && dialogue.done();
            }
            if (over) return;
            now_ += moved ? 1e-4 : 1e-2;
            for (unsigned rank = 0; rank < kRanks; ++rank) {
                if (dialogues[rank]->next_timer() <= now_) {
                    dialogues[rank]->expire(now_, outlets[rank]);
                }
            }
        }
        CHECK(!"the dialogues end");
    }

    std::vector<std::unique_ptr<Session>> sessions;
    bool narrowing = false;  // whether windows become narrower now and then

  private:
    // How often a packet arrives.
    unsigned fate() {
        const unsigned drawn = draw_() % 20;
        return drawn < 2 ? 0 : drawn < 4 ? 2 : 1;
    }

    void play(unsigned rank, const Datagram& datagram) {
        Datagram frame(wire::kAffluxOffset);
        packet::store_front(frame.data(), endpoint_of(rank), kHere, datagram.size());
        frame.insert(frame.end(), datagram.begin(), datagram.end());
        engine_.receive({frame.data(), frame.size()});
        SendQueue& queue = engine_.send();
        for (const SendQueue::Frame& out : queue.frames()) {
            Datagram answer(out.head.begin() + wire::kAffluxOffset, out.head.end());
            const std::uint8_t* body = queue.body(out);
            answer.insert(answer.end(), body, body + out.body_bytes);
            const unsigned to = packet::load_header(answer.data()).worker;
            for (unsigned copies = fate(); copies > 0; --copies) inboxes_[to].push_back(answer);
        }
        queue.clear();
    }

    std::mt19937 draw_;
    SoftEngine engine_;
    std::deque<Datagram> inboxes_[kRanks];
    double now_ = 0;
};

// Integers, which float32 holds too, and sums exactly.
template <typename Element, arithmetic::Dtype kDtype>
void test_sums(Network& network, std::size_t count, std::uint32_t fingerprint, unsigned sparse) {
    std::vector<std::vector<Element>> elements(kRanks), results(kRanks);
    std::vector<Element> expected(count, 0);
    std::mt19937 draw(static_cast<unsigned>(count));
    for (unsigned rank = 0; rank < kRanks; ++rank) {
        elements[rank].assign(count, 0);
        results[rank].assign(count, 0);
        for (std::size_t i = 0; i < count; ++i) {
            if ((i / 64 + rank) % sparse == 0) {
                elements[rank][i] = static_cast<Element>(draw() % 1000);
            }
            expected[i] += elements[rank][i];
        }
    }
    std::vector<std::unique_ptr<Operation>> operations;
    for (unsigned rank = 0; rank < kRanks; ++rank) {
        const worker::Tensor tensor{kDtype, arithmetic::Op::Sum,   static_cast<int>(kRanks),
                                    count,  elements[rank].data(), results[rank].data()};
        operations.push_back(
            std::make_unique<Operation>(*network.sessions[rank], tensor, fingerprint));
    }
    network.run(operations);
    for (unsigned rank = 0; rank < kRanks; ++rank) CHECK(results[rank] == expected);
}

// The ranks have room for fewer packets than there are slots, and ever fewer, each at its own time:
// none waits for ever for a packet that another keeps back.
void test_narrow_windows() {
    for (unsigned seed = 10; seed < 200; ++seed) {
        Network network(seed);
        network.narrowing = seed % 2 == 0;
        if (!network.narrowing) {
            for (unsigned rank = 0; rank < kRanks; ++rank) {
                worker::Window& window = network.sessions[rank]->window;
                window.limit(1 + (rank + seed) % kRanks);
                CHECK(window.size() == 1 + (rank + seed) % kRanks);
            }
        }
        test_sums<std::int32_t, arithmetic::Dtype::Int32>(network, 20011, 1, 3);
        test_sums<float, arithmetic::Dtype::Float32>(network, 5003, 2, 2);
    }
}

// So many results of which a share is lost leave a window of about this size.
std::size_t window_after(unsigned packets, unsigned lost_of_hundred) {
    worker::Window window(256);
    for (unsigned packet = 0; packet < packets; ++packet) {
        if (packet % 100 < lost_of_hundred) {
            window.lost();
        } else {
            window.answered();
        }
    }
    return window.size();
}

void test_a_window_follows_the_losses() {
    CHECK(worker::Window(64).size() == 64);
    CHECK(window_after(100'000, 0) == 256);
    const std::size_t few = window_after(100'000, 1), many = window_after(100'000, 10);
    CHECK(150 < few && few < 250);
    CHECK(12 < many && many < 30);
    CHECK(window_after(100'000, 100) == 8);
    worker::Window narrow(64);
    narrow.limit(3);
    for (int i = 0; i < 100; ++i) narrow.lost();
    CHECK(narrow.size() == 3);
    narrow.limit(0);
    CHECK(narrow.size() == 1);
}

// Where very many are lost, the size at which few are becomes a ceiling for a while.
void test_a_window_is_cut_by_a_queue_that_overflows() {
    worker::Window window(128);
    const auto answer = [&window](unsigned packets) {
        for (unsigned packet = 0; packet < packets; ++packet) window.answered();
        return window.size();
    };
    // More than the queue holds get lost.
    for (int flight = 0; flight < 20; ++flight) {
        const std::size_t size = window.size();
        for (std::size_t packet = 0; packet < size; ++packet) {
            packet < 40 ? window.answered() : window.lost();
        }
    }
    const std::size_t cut = window.size();
    CHECK(8 <= cut && cut < 48);
    CHECK(answer(3 * 256) <= cut + 4);
    CHECK(answer(100'000) == 128);
}

}  // namespace

int main() {
    test_a_window_follows_the_losses();
    test_a_window_is_cut_by_a_queue_that_overflows();
    test_narrow_windows();
#ifdef AFFLUX_SANITIZED
    constexpr unsigned kSeeds = 2;  // each takes several times as long
#else
    constexpr unsigned kSeeds = 4;
#endif
    for (unsigned seed = 0; seed < kSeeds; ++seed) {
        Network network(seed);
        test_sums<std::int32_t, arithmetic::Dtype::Int32>(network, 0, 1, 1);
        test_sums<std::int32_t, arithmetic::Dtype::Int32>(network, 9, 2, 1);
        test_sums<std::int32_t, arithmetic::Dtype::Int32>(network, 5003, 3, 1);
        test_sums<std::int32_t, arithmetic::Dtype::Int32>(network, 20011, 4, 3);
        // Side by side, and in rounds.
        test_sums<float, arithmetic::Dtype::Float32>(network, 19, 5, 1);
        test_sums<float, arithmetic::Dtype::Float32>(network, 73, 6, 1);
        test_sums<float, arithmetic::Dtype::Float32>(network, 5003, 7, 2);
    }
}
