// Random mixes of all collectives on groups of threads with streams to each other, every byte of
// every result compared:
//
//     streams_collectives_test [first seed] [groups]
//
// Some groups have kernels with small buffers, some an aggregator. The same seed makes the same
// group. With STREAMS_UCX=… UCX carries the streams.
#include <cstdio>
#include <cstdlib>

#include "tests/collectives_program.hpp"
#include "tests/streams_ranks.hpp"

namespace {

using namespace afflux;
using namespace afflux::tests;

std::uint64_t aggregated_operations = 0;

void run_group(std::uint64_t seed, std::size_t operations) {
    Random random(seed);
    constexpr int kRanks[] = {1, 2, 2, 3, 4, 5, 8};
    const int ranks = kRanks[random() % 7];
    const int buffer_bytes = random() % 2 ? 0 : 8192;
    const bool aggregated = random() % 2 && !over_ucx();
    std::vector<std::vector<std::vector<int>>> lanes;
    for (std::size_t lane = 0, count = 1 + random() % 3; lane < count; ++lane)
        lanes.push_back(make_streams(ranks + aggregated, buffer_bytes));
    const auto threads = static_cast<int>(1 + random() % 3);
    // Tensors of one piece and of many, and around what takes one hop or one lane.
    const Edges edges = random() % 2 ? Edges{1024, 256 * (1 + below(random, 100))}
                                     : Edges{streams::kPieceBytes, streams::kPieceBytes};
    const Program program(seed, ranks, operations, edges, random);
    in_threads(ranks + aggregated, [&](int rank) {
        if (rank == ranks) {
            const std::vector<int> sources(static_cast<std::size_t>(ranks), 1);
            const auto aggregator = make_aggregator(lanes, sources);
            CHECK(aggregator->run().empty());
            CHECK(aggregator->operations() == 0 || ranks > 2);
            aggregated_operations += aggregator->operations();
            return;
        }
        const auto group = make_mesh(lanes, rank, threads, aggregated);
        const std::uint64_t bytes = program.run(*group, static_cast<std::size_t>(rank));
        const streams::Statistics statistics = group->statistics();
        CHECK(statistics.operations == operations && statistics.bytes == bytes);
        CHECK(statistics.blocks_present <= statistics.blocks_total);
        std::uint64_t sum = 0;
        for (const std::uint64_t each : statistics.collectives) sum += each;
        CHECK(sum == operations);
    });
}

}  // namespace

int main(int argc, char** argv) {
    const std::uint64_t first = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
    const std::uint64_t groups = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 8;
    for (std::uint64_t seed = first; seed < first + groups; ++seed) run_group(seed, 20);
    std::printf("%llu groups, %llu operations of aggregators\n",
                static_cast<unsigned long long>(groups),
                static_cast<unsigned long long>(aggregated_operations));
    CHECK(aggregated_operations > 0 || over_ucx());
}
