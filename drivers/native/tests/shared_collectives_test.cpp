// Random mixes of all collectives on groups of threads, every byte of every result compared:
//
//     shared_collectives_test [first seed] [groups]
//
// A group has random buffer sizes, its tensors come as one or as lists, with memory of their own or
// as parts of each other. The same seed makes the same group.
#include <cstdio>
#include <cstdlib>

#include "tests/collectives_program.hpp"
#include "tests/shared_ranks.hpp"

namespace {

using namespace afflux;
using namespace afflux::tests;

void run_group(std::uint64_t seed, std::size_t operations) {
    Random random(seed);
    constexpr int kRanks[] = {1, 2, 2, 3, 4, 5, 8};
    const int ranks = kRanks[random() % 7];
    const auto segment =
        make_segment(ranks, {256 * (1 + below(random, 16)), 256 * (1 + below(random, 16))});
    const shared::SegmentHeader& header = segment->control().header;
    const Program program(seed, ranks, operations, {header.small_bytes, header.batch_bytes},
                          random);
    in_threads(ranks, [&](int rank) {
        shared::Group group(segment, rank);
        const std::uint64_t bytes = program.run(group, static_cast<std::size_t>(rank));
        const shared::Statistics statistics = group.statistics();
        CHECK(statistics.operations == operations);
        CHECK(statistics.small + statistics.staged + statistics.one_pass == operations);
        CHECK(statistics.bytes == bytes);
        std::uint64_t sum = 0;
        for (const std::uint64_t each : statistics.collectives) sum += each;
        CHECK(sum == operations);
    });
}

}  // namespace

int main(int argc, char** argv) {
    const std::uint64_t first = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
    const std::uint64_t groups = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 24;
    for (std::uint64_t seed = first; seed < first + groups; ++seed) run_group(seed, 60);
    std::printf("%llu groups\n", static_cast<unsigned long long>(groups));
}
