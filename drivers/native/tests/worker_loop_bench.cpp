// How fast one worker's loop is, and what it costs: all-reduces with an aggregator that has no
// other worker, and so sends each contribution back as its result:
//
//     worker_loop_bench [megabytes [lanes [slots [times [aggregators]]]]]
//
// CPU and calls are those of the worker's thread.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tests/worker_mirror.hpp"
#include "worker/line.hpp"
#include "worker/operation.hpp"
#include "worker/udp_loop.hpp"

using namespace afflux;

namespace {

struct Cost {
    double wall, user, system;

    static Cost now() {
        rusage used{};
        getrusage(RUSAGE_THREAD, &used);
        const auto seconds = [](const timeval& time) {
            return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
        };
        return {worker::monotonic_now(), seconds(used.ru_utime), seconds(used.ru_stime)};
    }
};

}  // namespace

int main(int count, char** arguments) {
    const auto argument = [&](int at, long otherwise) {
        return at < count ? std::atol(arguments[at]) : otherwise;
    };
    const auto megabytes = static_cast<std::size_t>(argument(1, 64));
    const auto lanes = static_cast<unsigned>(argument(2, 16));
    const auto slots = static_cast<std::size_t>(argument(3, 64));
    const long times = argument(4, 5);
    const auto lines_used = static_cast<std::size_t>(argument(5, 1));

    std::vector<float> elements(megabytes << 18);
    for (std::size_t i = 0; i < elements.size(); ++i) {
        elements[i] = static_cast<float>(i % 1013) * 0.25F + 1.0F;
    }
    std::vector<float> result(elements.size());
    const worker::JobRun job = tests::mirrored_job(lanes, slots);
    std::vector<std::unique_ptr<tests::Mirror>> mirrors;
    std::vector<std::unique_ptr<worker::Session>> sessions;
    std::vector<std::unique_ptr<worker::Line>> owned;
    std::vector<worker::Line*> lines;
    for (std::size_t i = 0; i < lines_used; ++i) {
        mirrors.push_back(std::make_unique<tests::Mirror>());
        sessions.push_back(std::make_unique<worker::Session>(job, 1.0));
        owned.push_back(
            std::make_unique<worker::Line>(mirrors.back()->address(), *sessions.back(), nullptr));
        lines.push_back(owned.back().get());
    }
    worker::UdpLoop loop(lines);
    const worker::Tensor tensor{.dtype = arithmetic::Dtype::Float32,
                                .op = arithmetic::Op::Sum,
                                .ranks = 1,
                                .count = elements.size(),
                                .elements = elements.data(),
                                .result = result.data()};
    std::printf("%zu MB, %u lanes, %zu slots, %zu aggregators\n", megabytes, lanes, slots,
                lines_used);
    for (long i = 0; i < times; ++i) {
        std::uint64_t calls = 0 - loop.waits();
        for (const auto& line : owned) calls -= line->calls();
        const Cost begin = Cost::now();
        std::vector<std::unique_ptr<worker::Operation>> parts;
        for (std::size_t own = 0; own < lines_used; ++own) {
            parts.push_back(std::make_unique<worker::Operation>(*sessions[own], tensor, 1,
                                                                worker::Share{own, lines_used}));
        }
        for (std::size_t own = 0; own < lines_used; ++own) owned[own]->open(*parts[own]);
        loop.run(begin.wall + 60);
        const Cost end = Cost::now();
        calls += loop.waits();
        for (const auto& line : owned) calls += line->calls();
        std::uint64_t probes = 0, again = 0;
        for (const auto& session : sessions) {
            probes += session->counts.probes;
            again += session->counts.retransmissions;
        }
        const double bytes = 4.0 * static_cast<double>(elements.size());
        const double user = end.user - begin.user, system = end.system - begin.system;
        std::printf(
            "%6.2f Gbit/s, %5.1f calls/MB, CPU %.3f s/GB (%.3f user, %.3f system), "
            "%.2f Gbit/s each way for a core, %lu probes, %lu again%s\n",
            bytes * 8e-9 / (end.wall - begin.wall), static_cast<double>(calls) / (bytes * 1e-6),
            (user + system) / (bytes * 1e-9), user / (bytes * 1e-9), system / (bytes * 1e-9),
            bytes * 8e-9 / (user + system), static_cast<unsigned long>(probes),
            static_cast<unsigned long>(again), result == elements ? "" : ", WRONG");
    }
}
