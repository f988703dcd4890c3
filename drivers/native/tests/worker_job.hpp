// A job of workers and the engine that sums for them, for tests that play a network between.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/soft_engine.hpp"
#include "worker/session.hpp"

namespace afflux::tests {

using Datagram = std::vector<std::uint8_t>;

class WorkerJob {
  public:
    static constexpr wire::Key kKey = 77;
    static constexpr wire::Round kFirst = 0xFFFF'FFFD;

    WorkerJob(unsigned ranks, unsigned lanes, unsigned slots, unsigned credit)
        : engine_({.workers = ranks, .lanes = lanes}) {
        using engine::Address;
        const auto set = [this](Address address, std::uint32_t value) {
            engine_.write(static_cast<std::uint32_t>(address), value);
        };
        set(Address::LocalMacLow, 0x0A000001);
        set(Address::LocalMacHigh, 0x0200);
        set(Address::LocalAddress, here().address);
        set(Address::LocalPort, here().port);
        set(Address::JobKeyLow, kKey);
        set(Address::JobWorkers, ranks);
        set(Address::JobLanes, lanes);
        set(Address::JobSlotCount, slots);
        set(Address::JobRound, kFirst);
        set(Address::JobCredit, credit);
        set(Address::JobCommand, static_cast<std::uint32_t>(registers::Command::Create));
        for (unsigned rank = 0; rank < ranks; ++rank) {
            const worker::JobRun job{.number = 0,
                                     .key = kKey,
                                     .first_round = kFirst,
                                     .workers = ranks,
                                     .lanes = lanes,
                                     .slots = slots,
                                     .worker = static_cast<wire::Worker>(rank),
                                     .rank = rank,
                                     .ranks = ranks,
                                     .credit = credit,
                                     .group_host = 0,
                                     .group_port = 0};
            sessions.push_back(std::make_unique<worker::Session>(job, 1.0));
        }
    }

    // Lets the engine take a rank's datagram, and calls `answer` with each of its own, in order,
    // and the rank that it is for.
    template <typename Answer>
    void play(unsigned rank, const Datagram& datagram, Answer answer) {
        Datagram frame(wire::kAffluxOffset);
        const packet::Endpoint from{{}, 0x0A000100 + rank, static_cast<std::uint16_t>(5000 + rank)};
        packet::store_front(frame.data(), from, here(), datagram.size());
        frame.insert(frame.end(), datagram.begin(), datagram.end());
        engine_.receive({frame.data(), frame.size()});
        engine::SendQueue& queue = engine_.send();
        for (const engine::SendQueue::Frame& out : queue.frames()) {
            Datagram found(out.head.begin() + wire::kAffluxOffset, out.head.end());
            const std::uint8_t* body = queue.body(out);
            found.insert(found.end(), body, body + out.body_bytes);
            const unsigned to = packet::load_header(found.data()).worker;
            answer(to, std::move(found));
        }
        queue.clear();
    }

    std::vector<std::unique_ptr<worker::Session>> sessions;  // by rank

  private:
    static packet::Endpoint here() { return {{2, 0, 10, 0, 0, 1}, 0x0A000001, 4700}; }

    engine::SoftEngine engine_;
};

}  // namespace afflux::tests
