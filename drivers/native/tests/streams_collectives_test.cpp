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
using namespace afflux::collectives;

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

// The largest tensor of two ranks that takes one hop, and the next one, which no aggregator gets.
void sum_largest_of_one_hop(bool aggregated) {
    constexpr int kRanks = 2;
    constexpr std::size_t kMost = std::size_t{8} << 20;
    CHECK(streams::takes_one_hop(kMost, kRanks, 1, 0));
    CHECK(!streams::takes_one_hop(kMost + 1, kRanks, 1, 0));
    const std::vector lanes{make_streams(kRanks + aggregated), make_streams(kRanks + aggregated)};
    in_threads(kRanks + aggregated, [&](int rank) {
        if (rank == kRanks) {
            const auto aggregator = make_aggregator(lanes, {1, 1});
            CHECK(aggregator->run().empty() && aggregator->operations() == 0);
            return;
        }
        const auto group = make_mesh(lanes, rank, 2, aggregated);
        for (const std::size_t count : {kMost / sizeof(float), kMost / sizeof(float) + 1}) {
            std::vector<float> tensor(count);
            const auto element = [](int of, std::size_t i) {
                // Blocks of zeros are in each half.
                return i / 64 % 5 < 2 ? 0.0F : static_cast<float>(i % 1000) + 0.25F * of;
            };
            for (std::size_t i = 0; i < count; ++i) tensor[i] = element(rank, i);
            void* const out[] = {tensor.data()};
            Request request;
            request.outputs = out;
            request.count = count;
            request.dtype = Dtype::Float32;
            group->begin(request);
            CHECK(group->advance(std::chrono::seconds(60)));
            for (std::size_t i = 0; i < count; ++i)
                CHECK(tensor[i] == element(0, i) + element(1, i));
        }
    });
}

}  // namespace

int main(int argc, char** argv) {
    const std::uint64_t first = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
    const std::uint64_t groups = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 8;
    for (std::uint64_t seed = first; seed < first + groups; ++seed) run_group(seed, 20);
    for (const bool aggregated : {false, true})
        if (!over_ucx()) sum_largest_of_one_hop(aggregated);
    std::printf("%llu groups, %llu operations of aggregators\n",
                static_cast<unsigned long long>(groups),
                static_cast<unsigned long long>(aggregated_operations));
    CHECK(aggregated_operations > 0 || over_ucx());
}
