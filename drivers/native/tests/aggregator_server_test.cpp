// The server on loopback: sums with one thread and several, packets that come to the wrong thread,
// jobs that change while packets come, and datagrams of which every octet may be wrong. Under
// sanitizers nothing of that may touch what is not the server's, nor may threads.
#include <chrono>
#include <random>
#include <system_error>
#include <thread>

#include "tests/aggregator_workers.hpp"

using namespace afflux;
using namespace afflux::tests;
using registers::Counter;

namespace {

// Of IPv6; of no host where there is none.
datagrams::Address ipv6_loopback() {
    const auto loopback = datagrams::Address::parse("::1", 0);
    try {
        datagrams::UdpSocket(datagrams::Family::Ipv6).bind(loopback);
    } catch (const std::system_error&) {
        return {};
    }
    return loopback;
}

void test_sums(unsigned shares, bool offloads,
               const datagrams::Address& loopback = {kLoopback, 0}) {
    for (const Shape shape : {Shape{3, 5, 8}, Shape{1, 1, 1}, Shape{2, 16, 7}}) {
        Served served(shape, shares, loopback);
        Workers workers(shape, served.address(), offloads);
        workers.join();
        const auto all = static_cast<wire::Present>((1U << shape.lanes) - 1);
        // All lanes, every other lane, none.
        for (const unsigned present : {0xFFFFU, 0x5555U, 0U}) {
            workers.run(20, static_cast<wire::Present>(present & all));
        }
        const std::uint64_t rounds = 60U * shape.slots;
        CHECK(served.counter(Counter::Rounds) == rounds);
        CHECK(served.counter(Counter::Accepted) == rounds * shape.workers);
        CHECK(served.counter(Counter::FramesIn) ==
              served.counter(Counter::Accepted) + served.counter(Counter::Joins) +
                  served.counter(Counter::Duplicates) + served.counter(Counter::Stale));
        CHECK(served.counter(Counter::FramesOut) >= rounds * shape.workers);
    }
}

// A worker whose packets for all threads come joined into one message.
void test_strays() {
    const Shape shape{2, 4, 64};
    Served served(shape, 4);
    Workers workers(shape, served.address());
    workers.join();
    workers.run(10, 0xF);
    CHECK(served.counter(Counter::Rounds) == 640);
    if (datagrams::UdpSocket().can_segment()) CHECK(served.totals().handed_off > 0);
}

// The kernel steers datagrams that are not joined; those that it does not steer are handed over, so
// sums alone would not show it.
void test_steering(const datagrams::Address& loopback = {kLoopback, 0}) {
    const Shape shape{2, 4, 64};
    for (const bool joined : {false, true}) {
        Served served(shape, 4, loopback);
        Workers workers(shape, served.address(), joined, 4);
        workers.join();
        workers.run(10, 0xF);
        CHECK(served.counter(Counter::Rounds) == 640);
        CHECK(served.totals().handed_off == 0);
    }
}

// A JOIN and one with a wrong key, so close together that their answers wait side by side.
void test_answers_of_one_batch() {
    const Shape shape{2, 4, 8};
    Served served(shape, 1);
    datagrams::UdpSocket socket;
    socket.connect(served.address());
    datagrams::SendBatch batch(socket);
    datagrams::Receiver receiver(1000, false);
    std::vector<std::uint8_t> right(wire::kUdpPayloadMin), wrong(wire::kUdpPayloadMin);
    packet::store_header(right.data(), packet::join_header(1, 0, kKey));
    packet::store_header(wrong.data(), packet::join_header(1, 0, kKey + 1));
    batch.add({}, {datagrams::Part(right)});
    batch.add({}, {datagrams::Part(wrong)});
    CHECK(batch.flush());
    unsigned answers = 0;
    while (answers < 2) {
        pollfd readable{socket.number(), POLLIN, 0};
        CHECK(poll(&readable, 1, 10000) > 0);
        for (const datagrams::Datagram& each : receiver.receive(socket)) {
            const bool joined = packet::load_header(each.data).type() == wire::Type::Joined;
            const auto word = packet::load<std::uint32_t>(each.data + wire::kHeaderBytes);
            CHECK(word == (joined ? 2U : static_cast<std::uint32_t>(wire::Refusal::Key)));
            ++answers;
        }
    }
    CHECK(served.counter(Counter::Joins) == 1 && served.counter(Counter::BadKey) == 1);
}

// Many JOINs with a wrong key: answers come within the rate, and all JOINs are counted.
void test_refusals_are_limited() {
    const Shape shape{2, 4, 8};
    Served served(shape, 2);
    datagrams::UdpSocket socket;
    socket.connect(served.address());
    datagrams::SendBatch batch(socket);
    std::vector<std::uint8_t> wrong(wire::kUdpPayloadMin);
    packet::store_header(wrong.data(), packet::join_header(1, 0, kKey + 1));
    const auto begin = std::chrono::steady_clock::now();
    constexpr unsigned kAsked = 3000;
    for (unsigned i = 0; i < kAsked; ++i) {
        batch.add({}, {datagrams::Part(wrong)});
        if (i % 50 == 49) {
            while (!batch.flush()) {
            }
        }
        // Datagrams in the socket's buffer are taken.
        while (served.counter(Counter::FramesIn) + 500 < i) std::this_thread::yield();
    }
    while (!batch.flush()) {
    }
    while (served.counter(Counter::FramesIn) < kAsked) std::this_thread::yield();
    const auto periods = (std::chrono::steady_clock::now() - begin) / engine::RefusalLimit::kPeriod;
    const std::uint64_t refused = served.counter(Counter::FramesOut);
    CHECK(served.counter(Counter::BadKey) + served.counter(Counter::ReceiveOverflow) == kAsked);
    CHECK(refused >= engine::RefusalLimit::kBurst);
    CHECK(refused <= engine::RefusalLimit::kBurst + static_cast<std::uint64_t>(periods) + 1);
    CHECK(refused + served.counter(Counter::RefusalsDropped) == served.counter(Counter::BadKey));
}

// Two workers behind one port number and the last half of an address, which only the first half of
// it tells apart: a packet of one is not the other's.
void test_whole_addresses_are_compared() {
    using packet::Endpoint;
    const Endpoint one{.port = 4, .ipv6 = {{0xFD, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 0}};
    Endpoint other = one;
    CHECK(one.same_socket(other));
    other.ipv6.octets[1] = 2;
    CHECK(!one.same_socket(other));
    other = one;
    other.ipv6.zone = 2;
    CHECK(!one.same_socket(other));
    CHECK(!one.same_socket({.address = 0, .port = 4}));
}

void test_jobs_change_meanwhile() {
    const Shape shape{2, 4, 8};
    Served served(shape, 2);
    std::atomic<bool> done = false;
    std::thread operators([&] {
        using registers::Address;
        while (!done) {
            // Another job comes and goes, in other slots.
            served.set(Address::JobIndex, 2);
            served.set(Address::JobSlotBase, 500);
            served.set(Address::JobSlotCount, 100);
            served.set(Address::JobCommand, static_cast<std::uint32_t>(registers::Command::Create));
            served.counter(Counter::FramesIn);
            served.set(Address::JobCommand,
                       static_cast<std::uint32_t>(registers::Command::Destroy));
        }
    });
    {
        Workers workers(shape, served.address());
        workers.join();
        workers.run(200, 0xF);
    }
    done = true;
    operators.join();
    CHECK(served.counter(Counter::Rounds) == 1600);
}

// A job is made again, of another size, so that another thread has slots whose last results are
// still where they were. Under the thread sanitizer nobody writes to what the kernel copies out
// meanwhile: both are done with the lock of whoever had the slot, or has it.
void test_slots_go_to_another_thread() {
    const Shape small{2, 4, 8}, large{2, 4, 64};
    Served served(small, 2);
    for (const Shape& shape : {small, large, small}) {
        served.create(shape);
        Workers workers(shape, served.address());
        workers.join();
        workers.run(3, 0xF);
    }
    CHECK(served.counter(Counter::Rounds) == 3 * (8 + 64 + 8));
}

// So many results at a time that their headers, which wait in the outbox, fill more than one of its
// chunks.
void test_many_results_at_a_time() {
    const Shape shape{8, 1, 1000};
    Served served(shape, 1);
    Workers workers(shape, served.address());
    workers.join();
    workers.run(3, 0);
    CHECK(served.counter(Counter::Rounds) == 3000);
}

// All jobs that there can be at a time, each with its part of all slots; the kernel steers the
// packets of each.
void test_all_jobs() {
    const unsigned slots = kLimits.slots / kLimits.jobs;
    const auto shape_of = [&](unsigned job) { return Shape{2, 1, slots, job, job * slots}; };
    Served served(shape_of(0), 4);
    std::vector<std::unique_ptr<Workers>> jobs;
    for (unsigned job = 0; job < kLimits.jobs; ++job) {
        if (job > 0) served.create(shape_of(job));
        jobs.push_back(std::make_unique<Workers>(shape_of(job), served.address(), false, 4));
        jobs.back()->join();
    }
    // Again when all of them have been there.
    for (int turn = 0; turn < 2; ++turn) {
        for (const auto& workers : jobs) workers->run(2, 1);
    }
    CHECK(served.counter(Counter::Rounds) == 4 * kLimits.slots);
    CHECK(served.totals().handed_off == 0);
}

// The job of the highest number with all slots, and with all workers in the last ones.
void test_highest_numbers(unsigned shares) {
    const unsigned job = kLimits.jobs - 1;
    const Shape all_slots{2, 1, kLimits.slots, job, 0};
    const Shape all_workers{kLimits.workers, 16, 4, job, kLimits.slots - 4};
    Served served(all_slots, shares);
    for (const Shape& shape : {all_slots, all_workers}) {
        served.create(shape);
        Workers workers(shape, served.address());
        workers.join();
        workers.run(2, static_cast<wire::Present>(1U << (shape.lanes - 1)));
    }
    CHECK(served.counter(Counter::Rounds) == 2 * (all_slots.slots + all_workers.slots));
}

void test_any_octets(unsigned shares) {
    const Shape shape{2, 5, 8};
    Served served(shape, shares);
    Workers workers(shape, served.address());
    workers.join();
    std::mt19937 draw(7);
    datagrams::UdpSocket foreign;
    foreign.connect(served.address());
    datagrams::SendBatch batch(foreign);
    datagrams::Receiver answers(5000, true);
    std::uint64_t sent = 0;
    for (int round = 0; round < 40; ++round) {
        std::vector<std::vector<std::uint8_t>> packets;
        for (int i = 0; i < 100; ++i) {
            const auto present = static_cast<wire::Present>(draw() % 64);
            const std::size_t blocks = static_cast<std::size_t>(std::popcount(present));
            packets.emplace_back(packet::datagram_bytes(blocks));
            packet::store_header(
                packets.back().data(),
                {
                    .version_type = static_cast<std::uint8_t>(wire::kVersion << 4 | draw() % 14),
                    .opcode_dtype = static_cast<std::uint8_t>(draw()),
                    .job = static_cast<wire::Job>(draw() % 3),
                    .worker = static_cast<wire::Worker>(draw() % 3),
                    .slot = static_cast<wire::Slot>(draw() % 10),
                    .present = present,
                    .round = kFirst + static_cast<wire::Round>(round),
                    .key = draw() % 4 ? kKey : draw(),
                    .operation = 0,
                });
            // A JOIN with everything right would move a worker.
            if ((packets.back()[0] & 15) == 2) packets.back()[12] ^= 1;
            if (draw() % 4 == 0) packets.back().resize(draw() % 5000);
            batch.add({}, {datagrams::Part(packets.back())});
            ++sent;
        }
        while (!batch.flush()) {
        }
        answers.receive(foreign);
        workers.run(2, 0x1F);
    }
    CHECK(served.counter(Counter::Rounds) == 80 * 8);
    served.stop();
    CHECK(served.counter(Counter::FramesIn) >= sent);
    CHECK(served.counter(Counter::BadAddress) > 0);
    CHECK(served.counter(Counter::BadLength) > 0);
}

void test_numbers_differ() {
    engine::Engine engine({}, 2);
    CHECK_THROWS(std::invalid_argument, aggregator::Server(engine, {0}));
    CHECK_THROWS(std::invalid_argument, engine::Engine({}, 65));
}

}  // namespace

int main() {
    for (const unsigned shares : {1U, 2U, 3U}) {
        test_sums(shares, true);
        test_sums(shares, false);
    }
    test_strays();
    test_steering();
    test_answers_of_one_batch();
    test_refusals_are_limited();
    test_jobs_change_meanwhile();
    test_slots_go_to_another_thread();
    test_many_results_at_a_time();
    test_all_jobs();
    test_highest_numbers(1);
    test_highest_numbers(3);
    test_any_octets(1);
    test_any_octets(3);
    test_numbers_differ();
    test_whole_addresses_are_compared();
    if (const auto loopback = ipv6_loopback(); loopback.is_ipv6()) {
        test_sums(1, true, loopback);
        test_sums(3, false, loopback);
        test_steering(loopback);
    }
}
