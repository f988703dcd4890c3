// When a worker's loop asks for results, with a real socket.
#include <time.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "tests/check.hpp"
#include "tests/worker_mirror.hpp"
#include "worker/line.hpp"
#include "worker/operation.hpp"
#include "worker/udp_loop.hpp"

using namespace afflux;

namespace {

void sleep_for(double seconds) {
    const timespec time{0, static_cast<long>(seconds * 1e9)};
    nanosleep(&time, nullptr);
}

datagrams::Address bound(datagrams::UdpSocket& socket) {
    socket.enlarge(worker::kBufferBytes);
    socket.bind({tests::kLoopback, 0});
    return socket.own_address();
}

// The only worker of a job, which has opened a sum of so many blocks, and its aggregator, which
// does nothing unless the test lets it.
struct OneWorker {
    OneWorker(unsigned lanes, std::size_t slots, std::size_t blocks,
              std::size_t buffer_bytes = worker::kBufferBytes)
        : session(tests::mirrored_job(lanes, slots), 1.0),
          line(bound(aggregator), session, nullptr, buffer_bytes),
          elements(blocks * wire::kBlockElements, 1.5F),
          result(elements.size()),
          operation(session,
                    {.dtype = arithmetic::Dtype::Float32,
                     .op = arithmetic::Op::Sum,
                     .ranks = 1,
                     .count = elements.size(),
                     .elements = elements.data(),
                     .result = result.data()},
                    1) {
        line.open(operation);
    }

    // Sends each contribution that has come back as its result: the job has one worker.
    void answer() {
        do {
            datagrams::SendBatch batch(aggregator, false);
            std::vector<std::vector<std::uint8_t>> results;
            for (const datagrams::Datagram& each : receiver.receive(aggregator)) {
                if (each.data[0] != packet::version_type(wire::Type::Data)) continue;
                results.emplace_back(each.data, each.data + each.bytes)[0] =
                    packet::version_type(wire::Type::Result);
            }
            for (const auto& each : results) batch.add(line.own_address(), {each});
            CHECK(batch.flush());
        } while (receiver.more());
    }

    datagrams::UdpSocket aggregator;
    datagrams::Receiver receiver{packet::datagram_bytes(wire::kLanesMax), false};
    worker::Session session;
    worker::Line line;
    std::vector<float> elements, result;
    worker::Operation operation;
};

// More of them than one call of the kernel gives: what has come is read before anything is asked.
void test_results_that_wait_to_be_read_are_not_asked_for() {
    constexpr unsigned kLanes = 2;
    constexpr std::size_t kSlots = 2048;
    OneWorker one(kLanes, kSlots, kLanes * kSlots);
    worker::UdpLoop loop({&one.line});
    // The process gets no processor, and meanwhile all is answered and every timer runs out.
    one.answer();
    sleep_for(1.5 * worker::kInitial);
    std::size_t turns = 0;
    for (; turns < 1000 && !one.operation.done(); ++turns) {
        loop.run(worker::monotonic_now());
        one.answer();
    }
    CHECK(one.operation.done() && turns >= 10);
    CHECK(one.result == one.elements);
    CHECK(one.session.counts.probes == 0);
}

// An aggregator says that a contribution is missing, and then that it has come after all. A packet
// that is sent again is the contribution as it was, though the next one is made in its place.
void test_what_is_sent_again_is_as_it_was() {
    constexpr unsigned kLanes = 2;
    // Both lanes, then one: the packets have different lengths.
    OneWorker one(kLanes, 1, 2 * kLanes + 1);
    std::map<wire::Round, std::vector<std::uint8_t>> contributions;
    std::size_t repeated = 0;
    for (int turn = 0; turn < 100 && !one.operation.done(); ++turn) {
        datagrams::SendBatch batch(one.aggregator, false);
        std::vector<std::array<std::uint8_t, wire::kUdpPayloadMin>> missing;
        std::vector<std::vector<std::uint8_t>> results;
        for (const datagrams::Datagram& each : one.receiver.receive(one.aggregator)) {
            packet::Header header = packet::load_header(each.data);
            CHECK(each.bytes == packet::datagram_bytes(header.blocks()));
            std::vector<std::uint8_t> sent(each.data, each.data + each.bytes);
            const auto [known, first] = contributions.try_emplace(header.round, sent);
            CHECK(known->second == sent);
            repeated += static_cast<std::size_t>(!first);
            if (!first) continue;
            sent[0] = packet::version_type(wire::Type::Result);
            results.push_back(std::move(sent));
            header.version_type = packet::version_type(wire::Type::Missing);
            header.present = 0;
            packet::store_header(missing.emplace_back().data(), header);
        }
        for (const auto& each : missing) batch.add(one.line.own_address(), {each});
        for (const auto& each : results) batch.add(one.line.own_address(), {each});
        CHECK(batch.flush());
        one.line.receive();
    }
    CHECK(one.operation.done() && one.result == one.elements);
    CHECK(repeated >= 3);
}

// The answers to what is outstanding fit the receive buffer: so many packets are sent, and no more
// before there are answers.
void test_no_more_is_sent_than_the_buffer_has_room_for() {
    constexpr unsigned kLanes = 16;
    constexpr std::size_t kSlots = 256;
    // The kernel charges twice what is asked for: Linux's default.
    OneWorker one(kLanes, kSlots, kLanes * kSlots, 106'496);
    std::size_t sent = 0;
    do {
        sent += one.receiver.receive(one.aggregator).size();
    } while (one.receiver.more());
    CHECK(8 <= sent && sent < kSlots);
    CHECK(sent == one.session.window.size());
}

// Any thread may read the counts while another one drives the loop: the thread sanitizer watches.
void test_counts_are_read_while_the_loop_runs() {
    constexpr unsigned kLanes = 2;
    constexpr std::size_t kSlots = 16;
    OneWorker one(kLanes, kSlots, 8 * kLanes * kSlots);
    worker::UdpLoop loop({&one.line});
    std::atomic<bool> over = false;
    std::uint64_t most = 0;
    std::thread reader([&] {
        while (!over.load(std::memory_order_relaxed)) {
            const std::uint64_t calls = one.line.calls() + loop.waits();
            CHECK(calls >= most && one.session.trip.smoothed() >= 0);
            most = calls;
        }
    });
    for (int turn = 0; turn < 1000 && !one.operation.done(); ++turn) {
        // At first nothing has come yet, and there is time to wait for it.
        loop.run(worker::monotonic_now() + (turn == 0 ? 2e-2 : 1e-4));
        one.answer();
    }
    over = true;
    reader.join();
    CHECK(one.operation.done() && one.line.calls() + loop.waits() >= most);
    CHECK(one.session.trip.smoothed() > 0 && loop.waits() > 0);
}

// Has asked for something long ago, and counts what comes before it may ask again.
class Impatient final : public worker::Dialogue {
  public:
    double next_timer() const override { return 0; }
    bool done() const override { return asked_; }
    void open(double, worker::PacketSink&) override {}
    void receive(packet::PacketBuffer&, std::size_t, double, worker::PacketSink&) override {
        ++received_;
    }
    void expire(double, worker::PacketSink&) override { asked_ = true; }

    std::size_t received() const { return received_; }

  private:
    std::size_t received_ = 0;
    bool asked_ = false;
};

// Unread packets are read first, but a socket that is flooded is never read out.
void test_a_flood_does_not_keep_a_worker_from_asking() {
    constexpr std::size_t kFlood = 48'000, kAtATime = 1'000, kRoom = 64 << 20;
    const std::vector<std::uint8_t> noise(1);
    datagrams::UdpSocket aggregator;
    aggregator.bind({tests::kLoopback, 0});
    worker::Session session(tests::mirrored_job(1, 1), 1.0);
    worker::Line line(aggregator.own_address(), session, nullptr, kRoom);
    Impatient dialogue;
    line.open(dialogue);
    datagrams::SendBatch batch(aggregator, false);
    for (std::size_t sent = 0; sent < kFlood; sent += kAtATime) {
        for (std::size_t i = 0; i < kAtATime; ++i) batch.add(line.own_address(), {noise});
        CHECK(batch.flush());
    }
    worker::UdpLoop loop({&line});
    loop.run(worker::monotonic_now() + 60);
    CHECK(dialogue.done());
    // Without the right to a large buffer the flood is a short one.
    if (line.overflows() == 0) CHECK(1'000 <= dialogue.received() && dialogue.received() < kFlood);
}

}  // namespace

int main() {
    test_no_more_is_sent_than_the_buffer_has_room_for();
    test_counts_are_read_while_the_loop_runs();
    test_a_flood_does_not_keep_a_worker_from_asking();
    test_what_is_sent_again_is_as_it_was();
    test_results_that_wait_to_be_read_are_not_asked_for();
}
