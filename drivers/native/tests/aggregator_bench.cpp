// Times the server on loopback, with one thread that plays all workers:
//
//     aggregator_bench [workers [lanes [slots [threads [rounds [offloads [ranges [family]]]]]]]]
//
// `ranges`: as many parts of the slots, whose packets workers do not join. `family`: 4 or 6.
// Gbit/s of payload in and out, processor time and system calls of the server's threads alone.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "tests/aggregator_workers.hpp"

using namespace afflux;
using namespace afflux::tests;

int main(int count, char** arguments) {
    const auto number = [&](int at, unsigned otherwise) {
        return count > at ? static_cast<unsigned>(std::atoi(arguments[at])) : otherwise;
    };
    const Shape shape{number(1, 4), number(2, 16), number(3, 32)};
    const unsigned threads = number(4, 1), rounds = number(5, 2000);
    const auto loopback = datagrams::Address::parse(number(8, 4) == 6 ? "::1" : "127.0.0.1", 0);
    Served served(shape, threads, loopback);
    Workers workers(shape, served.address(), number(6, 1) != 0, number(7, 1));
    workers.join();
    const auto started = std::chrono::steady_clock::now();
    workers.run(rounds, static_cast<wire::Present>((1U << shape.lanes) - 1));
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - started;
    const auto totals = served.totals();
    served.stop();
    double processor = 0;
    for (const double each : served.processor_seconds()) processor += each;
    const auto in = static_cast<double>(totals.received.bytes);
    const auto out = static_cast<double>(totals.sent.bytes);
    const auto calls = static_cast<double>(totals.received.calls + totals.sent.calls);
    std::printf("%u workers, %u lanes, %u slots, %u threads: %.2f s\n", shape.workers, shape.lanes,
                shape.slots, threads, elapsed.count());
    std::printf("  Gbit/s in, out:         %.2f %.2f\n", 8e-9 * in / elapsed.count(),
                8e-9 * out / elapsed.count());
    std::printf("  Gbit/s by one core:     %.2f %.2f\n", 8e-9 * in / processor,
                8e-9 * out / processor);
    std::printf("  ns for a KiB in + out:  %.0f\n", 1e9 * processor / ((in + out) / 1024));
    std::printf("  send and receive calls for a MB in + out: %.1f\n", calls / ((in + out) * 1e-6));
    std::printf("  messages, datagrams in: %llu %llu; out: %llu %llu; handed_off %llu\n",
                static_cast<unsigned long long>(totals.received.messages),
                static_cast<unsigned long long>(totals.received.datagrams),
                static_cast<unsigned long long>(totals.sent.messages),
                static_cast<unsigned long long>(totals.sent.datagrams),
                static_cast<unsigned long long>(totals.handed_off));
}
