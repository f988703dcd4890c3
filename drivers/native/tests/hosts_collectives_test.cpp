// Random all-reduces and barriers on groups of threads that are several on each host, every byte of
// every result compared:
//
//     hosts_collectives_test [first seed] [groups]
//
// The same seed makes the same group.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <utility>

#include "hosts/group.hpp"
#include "tests/collectives_program.hpp"
#include "tests/shared_ranks.hpp"
#include "tests/streams_ranks.hpp"

namespace {

using namespace afflux;
using namespace afflux::tests;

constexpr Collective kKinds[] = {Collective::AllReduce, Collective::AllReduce,
                                 Collective::AllReduce, Collective::Barrier};

std::atomic<std::uint64_t> aggregated_operations{0};

// The memory and the streams of a group.
class Setup {
  public:
    Setup(const std::vector<int>& sizes, std::size_t lanes, bool aggregated)
        : sizes_(sizes), aggregated_(aggregated) {
        for (std::size_t h = 0; h < sizes.size(); ++h) {
            places_.hosts.emplace_back();
            for (int i = 0; i < sizes[h]; ++i) {
                places_.hosts[h].push_back(static_cast<int>(where_.size()));
                where_.emplace_back(static_cast<int>(h), i);
            }
            segments_.push_back(sizes[h] > 1 ? make_segment(sizes[h]) : nullptr);
        }
        for (int i = 0; i < places_.rails(); ++i) {
            auto& rail = rails_.emplace_back();
            for (std::size_t lane = 0; lane < lanes; ++lane)
                rail.push_back(make_streams(static_cast<int>(sizes.size()) + aggregated));
        }
    }

    int ranks() const { return places_.ranks(); }
    // Ranks, and the aggregators of rails.
    int members() const { return ranks() + (aggregated_ ? places_.rails() : 0); }

    // Sums for a rail. Returns whether `member` is one.
    bool aggregates(int member) const {
        if (member < ranks()) return false;
        const auto& rail = rails_[static_cast<std::size_t>(member - ranks())];
        const auto aggregator = make_aggregator(rail, sizes_);
        CHECK(aggregator->run().empty());
        aggregated_operations += aggregator->operations();
        return true;
    }

    std::unique_ptr<hosts::Group> group(int rank, bool rounds = false) const {
        hosts::Places own = places_;
        std::tie(own.host, own.index) = where_[static_cast<std::size_t>(rank)];
        const auto& segment = segments_[static_cast<std::size_t>(own.host)];
        auto local = segment ? std::make_shared<shared::Group>(segment, own.index) : nullptr;
        auto rail = own.index < own.rails() ? make_mesh(rails_[static_cast<std::size_t>(own.index)],
                                                        own.host, 1, aggregated_)
                                            : nullptr;
        return std::make_unique<hosts::Group>(own, std::move(local), std::move(rail), rounds);
    }

  private:
    const std::vector<int> sizes_;
    const bool aggregated_;
    hosts::Places places_;
    std::vector<std::pair<int, int>> where_;  // host and index of each rank
    std::vector<std::shared_ptr<shared::Segment>> segments_;
    std::vector<std::vector<std::vector<std::vector<int>>>> rails_;  // by index and lane
};

void run_group(std::uint64_t seed, std::size_t operations) {
    Random random(seed);
    const std::vector<int> kSizes[] = {{2, 2}, {2, 2}, {1, 3}, {4, 4}, {8, 2}};
    // So many that an aggregator has something to do.
    const std::vector<int> kThree[] = {{2, 1, 2}, {3, 3, 3}};
    const bool aggregated = seed % 2 == 0;
    const auto& sizes =
        aggregated || random() % 4 == 0 ? kThree[random() % 2] : kSizes[random() % 5];
    const std::size_t lanes = 1 + random() % 2;
    const Setup setup(sizes, lanes, aggregated);
    const int ranks = setup.ranks();
    const std::size_t stripe = std::size_t{32} << 10;
    // Around one stage, around stripes, and within a few pieces.
    const Edges kEdges[] = {{stripe, hosts::kStageBytes / 4}, {1024, 25600}, {stripe, 2 * stripe}};
    const Program program(seed, ranks, operations, kEdges[random() % 3], random, kKinds);
    in_threads(setup.members(), [&](int rank) {
        if (setup.aggregates(rank)) return;
        const auto whole = setup.group(rank);
        hosts::Group& group = *whole;
        CHECK(group.rank() == rank && group.ranks() == ranks);
        CHECK(program.run(group, static_cast<std::size_t>(rank)) == group.bytes());
        CHECK(group.operations() == operations);
    });
}

// Sums that are rounded in each host, and then once more; of averages the power of two comes off
// before the first step.
std::uint32_t expected_in_two_steps(const Case& given, const std::vector<int>& sizes,
                                    const std::vector<std::uint32_t>& all) {
    const auto ranks = static_cast<int>(all.size());
    const bool average = given.op == arithmetic::Op::Avg;
    sums::ExactSum sum({given.dtype});
    std::size_t first = 0;
    for (const int size : sizes) {
        sums::ExactSum host({given.dtype, average ? sums::average_scale(ranks) : 0});
        for (int i = 0; i < size; ++i) host.add(all[first++]);
        sum.add(host.rounded());
    }
    std::uint32_t bits = sum.rounded();
    if (average) {
        // In blocks of so many elements.
        std::array<std::uint32_t, 64> block{};
        arithmetic::put_bits(given.dtype, block.data(), 0, bits);
        sums::divide(given.dtype, ranks, 64, block.data());
        bits = arithmetic::bits_at(given.dtype, block.data(), 0);
    }
    return bits;
}

void run_rounded(const std::vector<int>& sizes) {
    std::size_t n = 0;
    for (const int size : sizes) n += static_cast<std::size_t>(size);
    for (const auto dtype :
         {arithmetic::Dtype::Float32, arithmetic::Dtype::Float16, arithmetic::Dtype::Bfloat16})
        for (const auto op : {arithmetic::Op::Sum, arithmetic::Op::Avg}) {
            // So many are for an aggregator.
            if (n == 6 && dtype != arithmetic::Dtype::Float32) continue;
            const Setup here(sizes, 1, n == 6);
            const Case given{dtype, op, n == 6 ? 70'000u : 5000u, 1, false};
            std::vector<Bytes> tensors;
            for (std::size_t r = 0; r < n; ++r) tensors.push_back(make_tensor(given, 77 + r));
            Bytes right(given.bytes());
            for (std::size_t i = 0; i < given.count; ++i) {
                std::vector<std::uint32_t> all;
                for (const Bytes& each : tensors)
                    all.push_back(arithmetic::bits_at(dtype, each.data(), i));
                arithmetic::put_bits(dtype, right.data(), i,
                                     expected_in_two_steps(given, sizes, all));
            }
            CHECK(right != expected(given, tensors));
            in_threads(here.members(), [&](int rank) {
                if (here.aggregates(rank)) return;
                const auto group = here.group(rank, true);
                Bytes tensor = tensors[static_cast<std::size_t>(rank)];
                all_reduce(*group, tensor.data(), given);
                CHECK(tensor == right);
            });
        }
}

// Floats of so many sizes that a block's sums of a host have one term, two that are packed, two
// that are not, and three.
Bytes make_floats(std::size_t count, Random& random) {
    Bytes tensor(4 * count);
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t block = i / 64;
        const std::uint64_t spread = 1 + (block % 4 == 3 ? 60 : 6 * (block % 4));
        const std::uint64_t exponent = 100 + (random() % 64 ? 0 : random() % spread);
        // With few bits of fraction there is one term.
        const std::uint64_t fraction = block % 5 ? 0x807FFFFF : 0x80700000;
        const auto bits = static_cast<std::uint32_t>((random() & fraction) | exponent << 23);
        std::memcpy(tensor.data() + 4 * i, &bits, 4);
    }
    return tensor;
}

void run_terms(const std::vector<int>& sizes, arithmetic::Op op, bool aggregated) {
    const Setup here(sizes, 1, aggregated);
    const Case given{arithmetic::Dtype::Float32, op, 70'000, 1, false};
    Random random(3);
    std::vector<Bytes> tensors;
    for (int r = 0; r < here.ranks(); ++r) tensors.push_back(make_floats(given.count, random));
    const Bytes right = expected(given, tensors);
    in_threads(here.members(), [&](int rank) {
        if (here.aggregates(rank)) return;
        const auto group = here.group(rank);
        Bytes tensor = tensors[static_cast<std::size_t>(rank)];
        all_reduce(*group, tensor.data(), given);
        CHECK(tensor == right);
    });
}

}  // namespace

int main(int argc, char** argv) {
    const std::uint64_t first = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
    const std::uint64_t groups = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 2;
    for (std::uint64_t seed = first; seed < first + groups; ++seed) run_group(seed, 8);
    // The second one has aggregators.
    for (const auto& sizes : {std::vector<int>{2, 2}, {3, 2, 1}}) run_rounded(sizes);
    run_terms({2, 2}, arithmetic::Op::Sum, false);
    run_terms({2, 3, 1}, arithmetic::Op::Avg, true);
    std::printf("%llu groups, %llu operations of aggregators\n",
                static_cast<unsigned long long>(groups),
                static_cast<unsigned long long>(aggregated_operations));
    CHECK(aggregated_operations > 0);
}
