// Random operations on groups of threads, every element of every result compared:
//
//     shared_stress_test [first seed] [groups]
//
// A group has random buffer sizes and makes random operations, small, staged, in one pass, or
// mixed, with ranks that come late. The same seed makes the same group.
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "tests/shared_ranks.hpp"

namespace {

using namespace afflux;
using namespace afflux::tests;

constexpr std::size_t kReachable = std::size_t{64} << 10;

// Sizes around everything that something ends at.
std::size_t random_count(Random& random, arithmetic::Dtype dtype,
                         const shared::SegmentHeader& header) {
    const std::size_t size = arithmetic::size_of(dtype);
    const std::size_t small = header.small_bytes / size, batch = header.batch_bytes / size;
    const std::size_t edges[] = {0,         1,         64,        73,        74,
                                 128,       small,     batch,     2 * batch, 3 * batch,
                                 5 * batch, 9 * batch, small + 64};
    if (random() % 3 == 0) return below(random, 8 * batch);
    std::size_t count = edges[below(random, std::size(edges))];
    count += below(random, 3);
    return count > 0 ? count - 1 : 0;
}

Case random_case(Random& random, const shared::SegmentHeader& header) {
    const auto dtype = static_cast<arithmetic::Dtype>(random() % 4);
    auto op = static_cast<arithmetic::Op>(random() % 2 == 0 ? 0 : random() % 4);
    if (!arithmetic::is_defined(dtype, op)) op = arithmetic::Op::Sum;
    constexpr double kDensities[] = {1, 1, 0.5, 0.05, 0};
    return {dtype, op, random_count(random, dtype, header), kDensities[random() % 5],
            random() % 4 == 0};
}

// Where the ranks' tensors lie.
enum class Places { Ordinary, Reachable, Mixed, Shifted };

void run_group(std::uint64_t seed, int operations) {
    Random random(seed);
    constexpr int kRanks[] = {1, 2, 2, 3, 4, 5, 8};
    const int ranks = kRanks[random() % 7];
    const auto segment =
        make_segment(ranks, {512 * (1 + below(random, 4)), 512 * (1 + below(random, 8))});
    std::vector<Case> cases;
    std::vector<Places> places;
    std::vector<std::vector<Bytes>> tensors;
    std::vector<Bytes> results;
    for (int i = 0; i < operations; ++i) {
        Case one = random_case(random, segment->control().header);
        if (one.bytes() > kReachable / 2) one.count /= 4;
        cases.push_back(one);
        places.push_back(static_cast<Places>(random() % 4));
        auto& inputs = tensors.emplace_back();
        for (int r = 0; r < ranks; ++r) inputs.push_back(make_tensor(one, random()));
        results.push_back(expected(one, inputs));
    }
    in_threads(ranks, [&](int rank) {
        Random own(seed * 1000 + static_cast<std::uint64_t>(rank));
        shared::Group group(segment, rank);
        if (rank % 2 == 1) spoil_environment();
        const auto memory = group.allocate(0, kReachable);
        for (std::size_t i = 0; i < cases.size(); ++i) {
            const Case& one = cases[i];
            Bytes tensor = tensors[i][static_cast<std::size_t>(rank)];
            std::byte* data = tensor.data();
            const bool reachable = places[i] == Places::Reachable || places[i] == Places::Shifted ||
                                   (places[i] == Places::Mixed && rank % 2 == 0);
            if (reachable) {
                data = memory->slice(rank) + (places[i] == Places::Shifted ? rank * 256 : 512);
                std::copy(tensor.begin(), tensor.end(), data);
            }
            if (own() % 8 == 0)
                std::this_thread::sleep_for(std::chrono::microseconds(below(own, 300)));
            if (own() % 8 == 0) std::this_thread::yield();
            begin_all_reduce(group, data, one.count, one.dtype, one.op, i);
            // A timeout of nothing now and then: the operation goes on where it was.
            while (own() % 4 == 0)
                if (group.advance(std::chrono::nanoseconds(own() % 1000))) goto over;
            finish(group);
        over:
            if (one.count != 0 && std::memcmp(data, results[i].data(), one.bytes()) != 0) {
                std::size_t at = 0;
                while (data[at] == results[i][at]) ++at;
                std::fprintf(stderr,
                             "seed %llu: rank %d of %d, operation %zu: dtype %d op %d count %zu "
                             "place %d: wrong from element %zu on\n",
                             static_cast<unsigned long long>(seed), rank, ranks, i,
                             static_cast<int>(one.dtype), static_cast<int>(one.op), one.count,
                             static_cast<int>(places[i]), at / arithmetic::size_of(one.dtype));
                CHECK(false);
            }
        }
        const shared::Statistics statistics = group.statistics();
        CHECK(statistics.operations == cases.size());
        CHECK(statistics.small + statistics.staged + statistics.one_pass == cases.size());
        group.release(memory);
    });
}

// That ranks notice calls that differ, which random cases do not show.
void run_disagreement() {
    const auto segment = make_segment(3);
    std::atomic<int> raised{0};
    in_threads(3, [&](int rank) {
        shared::Group group(segment, rank);
        float one = 1;
        try {
            begin_all_reduce(group, &one, 1, arithmetic::Dtype::Float32,
                             rank == 2 ? arithmetic::Op::Max : arithmetic::Op::Sum, 7);
            finish(group);
        } catch (const shared::Disagreement&) {
            ++raised;
        }
        CHECK(one == 1);
    });
    CHECK(raised == 3);
}

}  // namespace

int main(int argc, char** argv) {
    const std::uint64_t first = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
    const std::uint64_t groups = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 24;
    run_disagreement();
    for (std::uint64_t seed = first; seed < first + groups; ++seed) run_group(seed, 60);
    std::printf("%llu groups\n", static_cast<unsigned long long>(groups));
}
