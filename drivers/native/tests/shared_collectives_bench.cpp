// Times all collectives among processes of one host, through the calls of c_api.h:
//
//     shared_collectives_bench [ranks,…] [bytes,…] [collective,…]
//
// One line a case: microseconds a call (median over runs of the slowest rank's mean), beside them
// those of every rank copying as many bytes from one place to another at the same time. Bytes are
// of the larger side: the gathered tensor, the one that is scattered. Collectives by number; the
// elements are float32, 10 is an all-reduce of int64, and 13 a reduce-scatter of it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "collectives/c_api.hpp"
#include "tests/shared_timing.hpp"

namespace {

using namespace afflux;
using shared::Clock;

constexpr int kRuns = 7;
constexpr std::int64_t kMinute = 60'000'000'000;

struct Results {
    double seconds[2][kRuns][arithmetic::kMaxRanks];
};

void call(const afflux_calls& calls, const afflux_request& request) {
    afflux_outcome outcome;
    if (calls.run(calls.group, &request, kMinute, &outcome) != AFFLUX_OVER) std::abort();
}

void run_rank(std::shared_ptr<shared::Segment> segment, int rank, int ranks, std::size_t bytes,
              int collective, Results& results) {
    shared::Calls group(std::make_shared<shared::Group>(std::move(segment), rank));
    const bool integers = collective >= 10;
    const std::size_t size = integers ? 8 : 4;
    const bool parts =
        collective % 10 == AFFLUX_ALL_GATHER || collective % 10 == AFFLUX_REDUCE_SCATTER;
    std::vector<float> from(bytes / 4 + 16, 1.5f), to(bytes / 4 + 16, 0.5f);
    const void* const input = from.data();
    void* const output = to.data();
    afflux_request request{};
    request.collective = collective % 10;
    request.dtype = integers ? AFFLUX_INT64 : AFFLUX_FLOAT32;
    // Sums of sums would become infinite.
    request.reduction = integers ? AFFLUX_SUM : AFFLUX_AVG;
    request.count = collective == AFFLUX_BARRIER
                        ? 0
                        : bytes / size / (parts ? static_cast<std::size_t>(ranks) : 1);
    request.inputs = &input;
    request.outputs = &output;
    request.input_count = parts;
    request.output_count = 1;
    afflux_request barrier{};
    barrier.collective = AFFLUX_BARRIER;
    const int calls = std::max(
        3, static_cast<int>(std::min(2000.0, 20e6 / (static_cast<double>(bytes * ranks) + 1e4))));
    for (int run = -1; run < kRuns; ++run) {
        for (const int kind : {0, 1}) {
            call(group.calls(), barrier);
            const auto start = Clock::now();
            for (int i = 0; i < calls; ++i) {
                if (kind == 0) {
                    call(group.calls(), request);
                } else {
                    std::memcpy(to.data(), from.data(), bytes);
                    asm volatile("" ::: "memory");
                }
            }
            call(group.calls(), barrier);
            const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
            if (run >= 0) results.seconds[kind][run][rank] = seconds / calls;
        }
    }
    if (rank == 0) timing::print_statistics(*group.open());
}

void run_case(int ranks, std::size_t bytes, int collective) {
    const timing::Common<Results> results;
    timing::run_ranks(ranks, {}, [&](auto segment, int rank) {
        run_rank(std::move(segment), rank, ranks, bytes, collective, *results);
    });
    std::printf("%5d %10zu %10d", ranks, bytes, collective);
    for (const int kind : {0, 1}) {
        std::vector<double> seconds;
        for (int run = 0; run < kRuns; ++run)
            seconds.push_back(*std::max_element(results->seconds[kind][run],
                                                results->seconds[kind][run] + ranks));
        std::sort(seconds.begin(), seconds.end());
        std::printf(" %10.2f %10.2f", seconds[kRuns / 2] * 1e6, seconds[0] * 1e6);
    }
    std::printf("\n");
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    const auto argument = [&](int i, const char* otherwise) {
        return timing::numbers(argc > i ? argv[i] : otherwise);
    };
    std::printf("%5s %10s %10s %10s %10s %10s %10s\n", "ranks", "bytes", "collective", "us", "best",
                "copy us", "best");
    std::fflush(stdout);
    for (const double ranks : argument(1, "2,4"))
        for (const double bytes : argument(2, "4,1024,262144,16777216"))
            for (const double collective : argument(3, "0,1,2,3,4,10,13"))
                if (int(collective) != AFFLUX_BARRIER || bytes <= 4)
                    run_case(int(ranks), std::size_t(bytes), int(collective));
}
