// Refusals of an engine, and their rate: never for less than a whole JOIN, and within a rate.
#include <chrono>
#include <cstring>
#include <vector>

#include "engine/soft_engine.hpp"
#include "packet/octets.hpp"
#include "tests/check.hpp"

using namespace afflux;
using namespace afflux::engine;
using namespace std::chrono_literals;

namespace {

using Frame = std::vector<std::uint8_t>;

const packet::Endpoint kHere{{2, 0, 10, 0, 0, 1}, 0x0A000001, 4700};
const packet::Endpoint kStranger{{2, 0, 10, 0, 0, 7}, 0x0A000007, 5000};

SoftEngine& configured(SoftEngine& engine) {
    const auto set = [&engine](Address address, std::uint32_t value) {
        engine.write(static_cast<std::uint32_t>(address), value);
    };
    set(Address::LocalMacLow, 0x0A000001);
    set(Address::LocalMacHigh, 0x0200);
    set(Address::LocalAddress, kHere.address);
    set(Address::LocalPort, kHere.port);
    return engine;
}

// A JOIN to a job that there is not, with its UDP checksum.
Frame join(unsigned version) {
    packet::Header header = packet::join_header(1, 0, 5);
    header.version_type = static_cast<std::uint8_t>(version << 4 | (header.version_type & 15));
    const packet::Head head = packet::make_head(kStranger, kHere, header);
    Frame frame(wire::kPayloadOffset);
    std::memcpy(frame.data(), head.data(), head.size());
    std::uint8_t* udp = frame.data() + wire::kEthernetBytes + wire::kIpv4Bytes;
    const std::size_t bytes = frame.size() - wire::kEthernetBytes - wire::kIpv4Bytes;
    packet::store_big_16(udp + 6, 0);
    const std::uint64_t pseudo = packet::add_words(17 + bytes, udp - 8, 8);
    const auto sum = packet::fold(packet::add_words(pseudo, udp, bytes));
    packet::store_big_16(udp + 6, static_cast<std::uint16_t>(~sum));
    return frame;
}

std::size_t answers(SoftEngine& engine, const Frame& frame) {
    engine.receive({frame.data(), frame.size()});
    SendQueue& queue = engine.send();
    const std::size_t sent = queue.frames().size();
    queue.clear();
    return sent;
}

std::uint64_t counter(SoftEngine& engine, Counter number) {
    const auto place = static_cast<std::uint32_t>(number);
    return engine.read(registers::kCounterBase + 8 * place);
}

// The order of checks: length, checksum, then the version.
void test_order() {
    SoftEngine engine({.workers = 4, .lanes = 4, .jobs = 2, .slots = 8});
    configured(engine);
    for (const unsigned version : {1U, 2U}) {
        const Frame whole = join(version);
        CHECK(answers(engine, whole) == 1);
        // As long as its headers say, and as they do not say.
        Frame cut = whole;
        cut.resize(wire::kLookaheadOffset);
        CHECK(answers(engine, cut) == 0);
        Frame damaged = whole;
        damaged.back() ^= 1;
        CHECK(answers(engine, damaged) == 0);
        Frame unchecked = whole;
        unchecked[40] = unchecked[41] = 0;
        CHECK(answers(engine, unchecked) == 0);
    }
    CHECK(counter(engine, Counter::BadLength) == 2 && counter(engine, Counter::BadChecksum) == 2);
    CHECK(counter(engine, Counter::BadVersion) == 2 && counter(engine, Counter::BadJob) == 2);
    CHECK(counter(engine, Counter::RefusalsDropped) == 0);
}

std::size_t refused(SoftEngine& engine, unsigned asked) {
    std::size_t sent = 0;
    for (unsigned i = 0; i < asked; ++i) sent += answers(engine, join(1 + i % 2));
    return sent;
}

void test_rate() {
    SoftEngine engine({.workers = 4, .lanes = 4, .jobs = 2, .slots = 8});
    configured(engine);
    // Without a clock nothing is limited.
    CHECK(refused(engine, 1000) == 1000);
    Core& core = engine.engine().share(0).core;
    const auto begin = 77s + 5ns;
    core.at(begin);
    CHECK(refused(engine, 200) == RefusalLimit::kBurst);
    CHECK(counter(engine, Counter::RefusalsDropped) == 200 - RefusalLimit::kBurst);
    core.at(begin + RefusalLimit::kPeriod - 1ns);
    CHECK(refused(engine, 3) == 0);
    core.at(begin + RefusalLimit::kPeriod);
    CHECK(refused(engine, 3) == 1);
    // Parts of a period add up, and no time passes twice.
    for (unsigned i = 1; i <= 10; ++i) core.at(begin + RefusalLimit::kPeriod + i * 100us);
    CHECK(refused(engine, 9) == 4);
    core.at(begin + RefusalLimit::kPeriod);
    CHECK(refused(engine, 9) == 0);
    // A long rest is worth no more than a full bucket.
    core.at(begin + 1h);
    CHECK(refused(engine, 200) == RefusalLimit::kBurst);
}

}  // namespace

int main() {
    test_order();
    test_rate();
}
