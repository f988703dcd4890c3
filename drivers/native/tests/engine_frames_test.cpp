// Whole rounds, and frames of which every octet may be wrong: under sanitizers, nothing of them may
// touch what is not the engine's. That the engine is right is shown elsewhere, against the golden
// model.
#include <cstring>
#include <random>
#include <vector>

#include "engine/soft_engine.hpp"
#include "packet/octets.hpp"
#include "tests/check.hpp"

using namespace afflux;
using namespace afflux::engine;
using packet::Endpoint;
using packet::Header;

namespace {

using Frame = std::vector<std::uint8_t>;

constexpr unsigned kWorkers = 3, kLanes = 5, kSlots = 4;
constexpr std::uint64_t kKey = 0x0123'4567'89AB'CDEF;
constexpr wire::Round kFirst = 0xFFFF'FFFE;
const Endpoint kHere{{2, 0, 10, 0, 0, 1}, 0x0A000001, 4700};
const Endpoint kAbove{{2, 0, 10, 0, 0, 9}, 0x0A000009, 4800};

Endpoint worker_endpoint(unsigned worker) {
    return {{2, 0, 10, 0, 1, static_cast<std::uint8_t>(worker)},
            0x0A000100 + worker,
            static_cast<std::uint16_t>(5000 + worker)};
}

void set(SoftEngine& engine, Address address, std::uint32_t value) {
    engine.write(static_cast<std::uint32_t>(address), value);
}

void create(SoftEngine& engine, unsigned number, bool below) {
    set(engine, Address::LocalMacLow, 0x0A000001);
    set(engine, Address::LocalMacHigh, 0x0200);
    set(engine, Address::LocalAddress, kHere.address);
    set(engine, Address::LocalPort, kHere.port);
    set(engine, Address::JobIndex, number);
    set(engine, Address::JobKeyLow, static_cast<std::uint32_t>(kKey));
    set(engine, Address::JobKeyHigh, kKey >> 32);
    set(engine, Address::JobWorkers, kWorkers);
    set(engine, Address::JobLanes, kLanes);
    set(engine, Address::JobSlotBase, number * kSlots);
    set(engine, Address::JobSlotCount, kSlots);
    set(engine, Address::JobRound, kFirst);
    set(engine, Address::JobParentAddress, below ? kAbove.address : 0);
    set(engine, Address::JobParentPort, kAbove.port);
    set(engine, Address::JobParentJob, 7);
    set(engine, Address::JobParentWorker, 1);
    set(engine, Address::JobCommand, static_cast<std::uint32_t>(registers::Command::Create));
}

Frame make_frame(const Endpoint& from, const Endpoint& to, Header header, std::int32_t element) {
    const packet::Head head = packet::make_head(from, to, header);
    Frame frame(wire::kPayloadOffset + header.blocks() * wire::kBlockBytes, 0xFF);
    std::memcpy(frame.data(), head.data(), head.size());
    for (std::size_t at = wire::kPayloadOffset; at < frame.size(); at += 4) {
        packet::store(frame.data() + at, element);
    }
    return frame;
}

Header header_of(wire::Type type, unsigned job, unsigned worker, wire::Round round) {
    return {
        .version_type = packet::version_type(type),
        .opcode_dtype = 1,
        .job = static_cast<wire::Job>(job),
        .worker = static_cast<wire::Worker>(worker),
        .slot = static_cast<wire::Slot>(type == wire::Type::Join ? 0 : 1),
        .present = static_cast<wire::Present>(type == wire::Type::Data ? 0b10011 : 0),
        .round = round,
        .key = kKey,
        .operation = 7,
    };
}

std::vector<Frame> play(SoftEngine& engine, const Frame& frame) {
    engine.receive({frame.data(), frame.size()});
    SendQueue& queue = engine.send();
    std::vector<Frame> sent;
    for (const SendQueue::Frame& out : queue.frames()) {
        sent.emplace_back(out.head.begin(), out.head.end());
        const std::uint8_t* body = queue.body(out);
        sent.back().insert(sent.back().end(), body, body + out.body_bytes);
    }
    queue.clear();
    return sent;
}

std::vector<Frame> play(SoftEngine& engine, wire::Type type, unsigned job, unsigned worker,
                        wire::Round round, std::int32_t element = 0) {
    const Header header = header_of(type, job, worker, round);
    return play(engine, make_frame(worker_endpoint(worker), kHere, header, element));
}

std::uint64_t counter(SoftEngine& engine, Counter number) {
    const auto address =
        static_cast<std::uint32_t>(registers::kCounterBase + 8 * static_cast<std::size_t>(number));
    const std::uint64_t low = engine.read(address);
    return std::uint64_t{engine.read(address + 4)} << 32 | low;
}

void join_all(SoftEngine& engine, unsigned job) {
    for (unsigned worker = 0; worker < kWorkers; ++worker) {
        CHECK(play(engine, wire::Type::Join, job, worker, 0).size() == 1);
    }
}

void test_rounds() {
    SoftEngine engine({.workers = 4, .lanes = kLanes, .jobs = 2, .slots = 2 * kSlots});
    create(engine, 0, false);
    join_all(engine, 0);
    for (wire::Round step = 0; step < 4; ++step) {
        const wire::Round round = kFirst + step;
        CHECK(play(engine, wire::Type::Data, 0, 2, round, 1).empty());
        CHECK(play(engine, wire::Type::Data, 0, 2, round, 1).empty());
        CHECK(play(engine, wire::Type::Probe, 0, 2, round).size() == 1);
        CHECK(play(engine, wire::Type::Data, 0, 0, round, 20).empty());
        const std::vector<Frame> results = play(engine, wire::Type::Data, 0, 1, round, 300);
        CHECK(results.size() == kWorkers);
        for (const Frame& result : results) {
            CHECK(result.size() == wire::kPayloadOffset + 3 * wire::kBlockBytes);
            CHECK(packet::load_header(result.data() + wire::kAffluxOffset).round == round);
            for (std::size_t at = wire::kPayloadOffset; at < result.size(); at += 4) {
                CHECK(packet::load<std::int32_t>(result.data() + at) == 321);
            }
        }
        const std::vector<Frame> again = play(engine, wire::Type::Data, 0, 1, round, 300);
        CHECK(again.size() == 1 && again[0] == results[1]);
    }
    CHECK(counter(engine, Counter::Rounds) == 4);
    CHECK(counter(engine, Counter::Accepted) == 12);
    CHECK(counter(engine, Counter::Overflows) == 0);
}

void test_a_parent() {
    SoftEngine engine({.workers = 4, .lanes = kLanes, .jobs = 2, .slots = 2 * kSlots});
    create(engine, 1, true);
    join_all(engine, 1);
    CHECK(play(engine, wire::Type::Data, 1, 0, kFirst, 1).empty());
    CHECK(play(engine, wire::Type::Data, 1, 1, kFirst, 1).empty());
    const std::vector<Frame> up = play(engine, wire::Type::Data, 1, 2, kFirst, 1);
    CHECK(up.size() == 1 && packet::load_big_16(up[0].data() + 34) == kHere.port + 2);
    CHECK(play(engine, wire::Type::Data, 1, 2, kFirst, 1) == up);
    Header down = header_of(wire::Type::Data, 7, 1, kFirst);
    down.version_type = packet::version_type(wire::Type::Result);
    down.key = 0;
    Endpoint port = kHere;
    port.port = static_cast<std::uint16_t>(kHere.port + 2);
    const std::vector<Frame> results = play(engine, make_frame(kAbove, port, down, 99));
    CHECK(results.size() == kWorkers);
    CHECK(packet::load<std::int32_t>(results[2].data() + wire::kPayloadOffset) == 99);
}

void test_any_octets() {
    std::mt19937 draw(1);
    SoftEngine engine({.workers = 4, .lanes = kLanes, .jobs = 2, .slots = 2 * kSlots});
    create(engine, 0, false);
    create(engine, 1, true);
    join_all(engine, 0);
    join_all(engine, 1);
    for (int number = 0; number < 40000; ++number) {
        const unsigned job = draw() % 2, worker = draw() % kWorkers;
        const wire::Round round = kFirst + static_cast<wire::Round>(number / 4000 + draw() % 2);
        const wire::Type type = draw() % 8 ? wire::Type::Data : wire::Type::Probe;
        Frame frame =
            make_frame(worker_endpoint(worker), kHere, header_of(type, job, worker, round),
                       static_cast<std::int32_t>(draw()));
        for (unsigned changes = draw() % 3; changes > 0; --changes) {
            frame[draw() % (draw() % 2 ? 64 : frame.size())] ^= static_cast<std::uint8_t>(draw());
        }
        if (draw() % 2) {
            // So that what stands behind the checksum is looked at too.
            std::uint8_t* ip = frame.data() + wire::kEthernetBytes;
            packet::store_big_16(ip + 10, 0);
            const auto sum = packet::fold(packet::add_words(0, ip, wire::kIpv4Bytes));
            packet::store_big_16(ip + 10, static_cast<std::uint16_t>(~sum));
        }
        if (draw() % 8 == 0) frame.resize(draw() % (2 * frame.size()));
        // A copy of its own size, so that reading beyond its end is seen.
        frame.shrink_to_fit();
        play(engine, frame);
    }
    CHECK(counter(engine, Counter::FramesIn) == 40000 + 2 * kWorkers);
    CHECK(counter(engine, Counter::Rounds) > 0);
    for (std::uint32_t address = 0; address < 0x400; ++address) engine.read(address);
}

void test_limits() {
    CHECK_THROWS(std::invalid_argument, SoftEngine({.workers = 65}));
    CHECK_THROWS(std::invalid_argument, SoftEngine({.lanes = 0}));
    CHECK_THROWS(std::invalid_argument, SoftEngine({.jobs = 257}));
    CHECK_THROWS(std::invalid_argument, SoftEngine({.slots = 65537}));
    SoftEngine engine({.workers = 4, .lanes = 4, .jobs = 1, .slots = 4});
    create(engine, 0, false);
    CHECK(engine.read(static_cast<std::uint32_t>(Address::JobReason)) ==
          static_cast<std::uint32_t>(registers::Reason::Lanes));
}

}  // namespace

int main() {
    test_rounds();
    test_a_parent();
    test_any_octets();
    test_limits();
}
