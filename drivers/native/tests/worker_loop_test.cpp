// When a worker's loop asks for results, with a real socket.
#include <time.h>

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

// More of them than one call of the kernel gives: what has come is read before anything is asked.
void test_results_that_wait_to_be_read_are_not_asked_for() {
    constexpr unsigned kLanes = 2;
    constexpr std::size_t kSlots = 2048;
    tests::Mirror mirror;
    worker::Session session(tests::mirrored_job(kLanes, kSlots), 1.0);
    worker::Line line(mirror.address(), session, nullptr);
    worker::UdpLoop loop({&line});
    std::vector<float> elements(kLanes * kSlots * wire::kBlockElements, 1.5F);
    std::vector<float> result(elements.size());
    const worker::Tensor tensor{.dtype = codec::Dtype::Float32,
                                .op = codec::Op::Sum,
                                .ranks = 1,
                                .count = elements.size(),
                                .elements = elements.data(),
                                .result = result.data()};
    worker::Operation operation(session, tensor, 1);
    line.open(operation);
    // The process gets no processor, and meanwhile all is answered and every timer runs out.
    sleep_for(1.5 * worker::kInitial);
    loop.run(worker::monotonic_now() + 30);
    CHECK(operation.done());
    CHECK(result == elements);
    CHECK(session.counts.probes == 0);
}

}  // namespace

int main() {
    test_results_that_wait_to_be_read_are_not_asked_for();
}
