// Times all-reduces among processes of one host:
//
//     shared_bench [ranks,…] [bytes,…] [density,…] [batch KiB,…]
//
// One line a case: milliseconds a call (median over ranks' means of the runs), of ordinary and of
// reachable tensors, of all ranks adding one in place, and of all reading, at the same time; and
// processor milliseconds of all ranks for one call.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "shared/group.hpp"
#include "tests/shared_timing.hpp"

namespace {

using namespace afflux;
using shared::Clock;
using namespace std::chrono_literals;

constexpr int kRuns = 5;

enum Kind { Ordinary, Reachable, AddOne, Read, Kinds };

struct Results {
    double seconds[Kinds][kRuns][codec::kMaxRanks];
    double processor[Kinds][kRuns][codec::kMaxRanks];
};

double processor_seconds() {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& t) {
        return double(t.tv_sec) + double(t.tv_usec) * 1e-6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void fill(float* data, std::size_t count, double density, unsigned seed) {
    std::mt19937 random(seed);
    std::memset(data, 0, count * sizeof(float));
    for (std::size_t b = 0; b < codec::blocks_of(count); ++b) {
        if (double(random()) >= density * 4294967296.0) continue;
        const std::size_t end = std::min(count, (b + 1) * codec::kBlock);
        for (std::size_t i = b * codec::kBlock; i < end; ++i)
            data[i] = float(int(random() % 2001) - 1000) * 0.001f;
    }
}

void all_reduce(shared::Group& group, float* data, std::size_t count) {
    void* const output = data;
    shared::Request request;
    request.outputs = {&output, 1};
    request.count = count;
    request.dtype = shared::Dtype::Float32;
    request.op = shared::Op::Avg;
    group.begin(request);
    while (!group.advance(60s)) std::abort();
}

void run_rank(std::shared_ptr<shared::Segment> segment, int rank, int ranks, std::size_t bytes,
              double density, Results& results) {
    shared::Group group(std::move(segment), rank);
    const std::size_t count = bytes / sizeof(float);
    const std::size_t room = (bytes + 4095) / 4096 * 4096;
    auto* const ordinary = static_cast<float*>(std::aligned_alloc(4096, room));
    const auto allocation = group.allocate(0, room);
    auto* const reachable = reinterpret_cast<float*>(allocation->slice(rank));
    fill(ordinary, count, density, unsigned(rank));
    fill(reachable, count, density, unsigned(rank));
    float tiny = 0;
    std::uint64_t sink = 0;
    const std::function<void()> actions[Kinds] = {
        [&] { all_reduce(group, ordinary, count); }, [&] { all_reduce(group, reachable, count); },
        [&] {
            for (std::size_t i = 0; i < count; ++i) ordinary[i] += 1e-30f;
            asm volatile("" ::: "memory");
        },
        [&] {
            const auto* words = reinterpret_cast<const std::uint64_t*>(ordinary);
            std::uint64_t sum = 0;
            for (std::size_t i = 0; i < count / 2; ++i) sum |= words[i];
            sink |= sum;
            asm volatile("" : : "r"(sum) : "memory");
        }};
    const int calls = std::max(1, int(std::min(2000.0, 30e6 / (double(bytes) * ranks + 2e4))));
    for (int run = -1; run < kRuns; ++run) {
        for (int kind = 0; kind < Kinds; ++kind) {
            // The floors come last in each run, and must not spoil zeros.
            if (kind == AddOne && density < 1) continue;
            all_reduce(group, &tiny, 1);
            const double processor = processor_seconds();
            const auto start = Clock::now();
            for (int i = 0; i < calls; ++i) actions[kind]();
            all_reduce(group, &tiny, 1);
            const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
            if (run < 0) continue;
            results.seconds[kind][run][rank] = seconds / calls;
            results.processor[kind][run][rank] = (processor_seconds() - processor) / calls;
        }
    }
    if (sink == 1) std::puts("");
    if (rank == 0) timing::print_statistics(group);
    std::free(ordinary);
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

void run_case(int ranks, std::size_t bytes, double density, std::size_t batch_bytes) {
    const timing::Common<Results> results;
    timing::run_ranks(ranks, {0, batch_bytes}, [&](auto segment, int rank) {
        run_rank(std::move(segment), rank, ranks, bytes, density, *results);
    });
    std::printf("%5d %11zu %7.3f %6zu", ranks, bytes, density, batch_bytes >> 10);
    for (int kind = 0; kind < Kinds; ++kind) {
        std::vector<double> seconds, processor;
        for (int run = 0; run < kRuns; ++run) {
            double sum = 0, longest = 0;
            for (int rank = 0; rank < ranks; ++rank) {
                longest = std::max(longest, results->seconds[kind][run][rank]);
                sum += results->processor[kind][run][rank];
            }
            seconds.push_back(longest);
            processor.push_back(sum);
        }
        std::printf("  %9.4f %8.3f", median(seconds) * 1e3, median(processor) * 1e3);
    }
    std::printf("\n");
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    const auto argument = [&](int i, const char* otherwise) {
        return timing::numbers(argc > i ? argv[i] : otherwise);
    };
    std::printf("%5s %11s %7s %6s  %9s %8s  %9s %8s  %9s %8s  %9s %8s\n", "ranks", "bytes",
                "density", "batch", "ordinary", "cpu", "reachable", "cpu", "add one", "cpu", "read",
                "cpu");
    std::fflush(stdout);
    for (const double ranks : argument(1, "2,4,8"))
        for (const double bytes : argument(2, "4096,262144,100000000"))
            for (const double density : argument(3, "1"))
                for (const double batch : argument(4, "0"))
                    run_case(int(ranks), std::size_t(bytes), density, std::size_t(batch) << 10);
}
