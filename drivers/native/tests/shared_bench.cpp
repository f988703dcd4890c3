// Times all-reduces among processes of one host:
//
//     shared_bench [ranks,…] [bytes,…] [density,…] [dtype,…] [batch KiB,…]
//
// One line a case: milliseconds a call of the slowest rank, the median of the runs' means and the
// least of all that are timed together, and processor milliseconds of all ranks for one call. The
// kinds take turns in each run, on tensors that differ from rank to rank and are as they were
// before each call:
//
//     ordinary   all-reduces of ordinary tensors
//     copies     their copies, without arithmetic and without waiting
//     in place   all-reduces of reachable tensors
//     add one    all ranks add one in place at the same time
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "arithmetic/elements.hpp"
#include "arithmetic/rounding.hpp"
#include "collectives/presence.hpp"
#include "shared/group.hpp"
#include "tests/shared_timing.hpp"

namespace {

using namespace afflux;
using shared::Clock;
using namespace std::chrono_literals;

constexpr int kRuns = 9;

enum Kind { Ordinary, Copies, InPlace, AddOne, Kinds };
constexpr const char* kNames[Kinds] = {"ordinary", "copies", "in place", "add one"};

struct Results {
    double seconds[Kinds][kRuns][arithmetic::kMaxRanks];
    double least[Kinds][arithmetic::kMaxRanks];
    double processor[Kinds][kRuns][arithmetic::kMaxRanks];
};

struct Setting {
    int ranks;
    std::size_t bytes;
    double density;
    shared::Dtype dtype;
    std::size_t batch_bytes;
};

double processor_seconds() {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& t) {
        return double(t.tv_sec) + double(t.tv_usec) * 1e-6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Gradients: normal numbers of a magnitude that changes from place to place.
void fill(std::byte* data, const Setting& setting, unsigned seed) {
    const auto dtype = static_cast<arithmetic::Dtype>(setting.dtype);
    const std::size_t count = setting.bytes / arithmetic::size_of(dtype);
    std::mt19937 draw(seed);
    std::normal_distribution<float> normal(0, 1e-3f);
    std::vector<float> some(1 << 16);
    for (float& each : some) each = normal(draw);
    std::memset(data, 0, setting.bytes);
    for (std::size_t first = 0; first < count; first += arithmetic::kBlock) {
        if (double(draw()) >= setting.density * 4294967296.0) continue;
        const std::size_t from = draw() % (some.size() - arithmetic::kBlock);
        const int power = -static_cast<int>(draw() % 6);
        for (std::size_t i = first; i < std::min(count, first + arithmetic::kBlock); ++i) {
            const double value = std::ldexp(some[from + i - first], power);
            arithmetic::put_bits(dtype, data, i,
                                 arithmetic::round_to(arithmetic::format_of(dtype), value));
        }
    }
}

void all_reduce(shared::Group& group, std::byte* data, std::size_t bytes, shared::Dtype dtype) {
    void* const output = data;
    shared::Request request;
    request.outputs = {&output, 1};
    request.dtype = dtype;
    request.count = bytes / shared::size_of(dtype);
    request.op = shared::Op::Sum;
    group.begin(request);
    while (!group.advance(60s)) std::abort();
}

// Copies as a staged all-reduce does: batch by batch in, its result, and out.
void copy(const shared::Segment& segment, int rank, std::byte* data, std::size_t bytes) {
    const std::size_t batch = segment.control().header.batch_bytes;
    const int ranks = segment.ranks();
    std::vector<std::uint8_t> present(shared::most_blocks(batch));
    std::size_t number = 0;
    for (std::size_t first = 0; first < bytes; first += batch, ++number) {
        const std::size_t blocks = (std::min(batch, bytes - first)) / wire::kBlockBytes;
        const auto share = [&](int r) { return shared::share_of(blocks, r, ranks); };
        const auto ring = [&](int r) {
            return segment.area(r).ring[number % shared::kRingBatches].elements;
        };
        const auto each = [&](int r, auto from, auto to) {
            const std::size_t at = share(r).first * wire::kBlockBytes;
            shared::copy_present(from + at, share(r).last * wire::kBlockBytes - at, to + at,
                                 present.data());
        };
        for (int r = 0; r < ranks; ++r) each(r, data + first, ring(rank));
        // The own share of the others is read.
        for (int r = 0; r < ranks; ++r) {
            std::uint64_t word, some = 0;
            const std::byte* const from = ring(r) + share(rank).first * wire::kBlockBytes;
            const std::size_t count = (share(rank).last - share(rank).first) * wire::kBlockBytes;
            for (std::size_t at = 0; r != rank && at < count; at += sizeof word) {
                std::memcpy(&word, from + at, sizeof word);
                some |= word;
            }
            asm volatile("" : : "r"(some));
        }
        for (int r = 0; r < ranks; ++r) {
            const std::size_t at = share(r).first * wire::kBlockBytes;
            if (r != rank)
                std::memcpy(data + first + at, ring(r) + at,
                            share(r).last * wire::kBlockBytes - at);
        }
    }
}

void run_rank(const std::shared_ptr<shared::Segment>& segment, int rank, const Setting& setting,
              Results& results) {
    shared::Group group(segment, rank);
    const std::size_t bytes = setting.bytes;
    // Small tensors are many, so that the clock and the barrier are not what is timed.
    const std::size_t tensors = std::clamp<std::size_t>((std::size_t{1} << 20) / bytes, 1, 64);
    const std::size_t room = (tensors * bytes + 4095) / 4096 * 4096;
    const auto calls =
        std::size_t(std::min(2000.0, std::max(1.0, 30e6 / (double(bytes) * setting.ranks + 2e4))));
    std::vector<std::byte> original(room);
    for (std::size_t i = 0; i < tensors; ++i)
        fill(original.data() + i * bytes, setting, unsigned(rank) + 100 * unsigned(i));
    auto* const ordinary = static_cast<std::byte*>(std::aligned_alloc(4096, room));
    const std::shared_ptr<shared::Allocation> allocation = group.allocate(0, room);
    std::byte tiny[4] = {};
    std::byte* const places[Kinds] = {ordinary, ordinary, allocation->slice(rank), ordinary};
    const std::function<void(std::byte*)> reduce = [&](std::byte* data) {
        all_reduce(group, data, bytes, setting.dtype);
    };
    const std::function<void(std::byte*)> actions[Kinds] = {
        reduce, [&](std::byte* data) { copy(*segment, rank, data, bytes); }, reduce,
        [&](std::byte* data) {
            auto* const numbers = reinterpret_cast<float*>(data);
            for (std::size_t i = 0; i < bytes / sizeof(float); ++i) numbers[i] += 1e-30f;
            asm volatile("" ::: "memory");
        }};
    for (double (&each)[arithmetic::kMaxRanks] : results.least) each[rank] = 1e9;
    for (int run = -1; run < kRuns; ++run) {
        for (int kind = 0; kind < Kinds; ++kind) {
            double seconds = 0, processor = 0;
            std::size_t done = 0;
            while (done < calls) {
                std::memcpy(places[kind], original.data(), tensors * bytes);
                all_reduce(group, tiny, sizeof tiny, shared::Dtype::Float32);
                const double used = processor_seconds();
                const auto start = Clock::now();
                for (std::size_t i = 0; i < tensors; ++i) actions[kind](places[kind] + i * bytes);
                all_reduce(group, tiny, sizeof tiny, shared::Dtype::Float32);
                const double passed = std::chrono::duration<double>(Clock::now() - start).count();
                seconds += passed;
                processor += processor_seconds() - used;
                done += tensors;
                double& least = results.least[kind][rank];
                if (run >= 0) least = std::min(least, passed / double(tensors));
            }
            if (run < 0) continue;
            results.seconds[kind][run][rank] = seconds / double(done);
            results.processor[kind][run][rank] = processor / double(done);
        }
    }
    if (rank == 0) timing::print_statistics(group);
    std::free(ordinary);
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

void run_case(const Setting& setting) {
    const timing::Common<Results> results;
    const shared::Sizes sizes{0, setting.batch_bytes};
    timing::run_ranks(setting.ranks, sizes, [&](const auto& segment, int rank) {
        run_rank(segment, rank, setting, *results);
    });
    std::printf("%5d %9zu %7.3f %5d %5zu", setting.ranks, setting.bytes, setting.density,
                int(setting.dtype), setting.batch_bytes >> 10);
    for (int kind = 0; kind < Kinds; ++kind) {
        std::vector<double> seconds, processor;
        const double* const least = results->least[kind];
        for (int run = 0; run < kRuns; ++run) {
            double sum = 0, longest = 0;
            for (int rank = 0; rank < setting.ranks; ++rank) {
                longest = std::max(longest, results->seconds[kind][run][rank]);
                sum += results->processor[kind][run][rank];
            }
            seconds.push_back(longest);
            processor.push_back(sum);
        }
        std::printf("  %8.4f %8.4f %8.4f", median(seconds) * 1e3,
                    *std::max_element(least, least + setting.ranks) * 1e3, median(processor) * 1e3);
    }
    std::printf("\n");
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    const auto argument = [&](int i, const char* otherwise) {
        return timing::numbers(argc > i ? argv[i] : otherwise);
    };
    std::printf("%5s %9s %7s %5s %5s", "ranks", "bytes", "density", "dtype", "batch");
    for (const char* name : kNames) std::printf("  %8s %8s %8s", name, "least", "cpu");
    std::printf("\n");
    std::fflush(stdout);
    for (const double ranks : argument(1, "2,4,8"))
        for (const double bytes : argument(2, "4096,262144,100000000"))
            for (const double density : argument(3, "1"))
                for (const double dtype : argument(4, "1,3"))
                    for (const double batch : argument(5, "0"))
                        run_case({int(ranks), std::size_t(bytes), density,
                                  shared::Dtype(int(dtype)), std::size_t(batch) << 10});
}
