// The stages whose costs are measured: they do what they count, and nothing is lost on the way.
#include <stdexcept>

#include "contract/wire.hpp"
#include "costs/stages.hpp"
#include "tests/check.hpp"

using namespace afflux;
using namespace afflux::costs;

namespace {

constexpr std::size_t kBytes = 1 << 20;

// Whole packets, of which there are as many as hold the bytes.
void check_bytes(const Cost& cost, std::size_t lanes, std::size_t step) {
    CHECK(cost.bytes > 0 && cost.bytes % (lanes * wire::kBlockBytes * step) == 0);
    CHECK(cost.bytes <= kBytes + lanes * wire::kBlockBytes * step);
    CHECK(cost.seconds >= 0 && cost.seconds < 60);
}

void test_stages(std::size_t lanes) {
    check_bytes(copy_packets(lanes, kBytes), lanes, 1);
    check_bytes(merge_packets(3, lanes, 7, kBytes), lanes, 3 * 7);
    for (const bool gathered : {false, true}) {
        for (const bool offloads : {false, true}) {
            const Exchange found = exchange_packets(lanes, 8, kBytes, gathered, offloads);
            check_bytes(found.send, lanes, 8);
            CHECK(found.receive.bytes == found.send.bytes);
            CHECK(found.join.bytes == found.send.bytes && found.join.calls == 0);
            const std::size_t rounds = found.send.bytes / (8 * lanes * wire::kBlockBytes);
            CHECK(found.send.calls >= rounds && found.receive.calls >= rounds);
        }
    }
}

template <typename Call>
void check_refused(Call call) {
    bool refused = false;
    try {
        call();
    } catch (const std::invalid_argument&) {
        refused = true;
    }
    CHECK(refused);
}

}  // namespace

int main() {
    for (const std::size_t lanes : {1, 5, 16}) test_stages(lanes);
    const Cost empty = empty_calls(100);
    CHECK(empty.calls == 100 && empty.bytes == 0);
    check_refused([] { copy_packets(0, kBytes); });
    check_refused([] { copy_packets(17, kBytes); });
    check_refused([] { merge_packets(65, 16, 8, kBytes); });
    check_refused([] { merge_packets(2, 16, 0, kBytes); });
    check_refused([] { exchange_packets(16, 0, kBytes, false, true); });
}
