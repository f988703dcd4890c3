// Times correctly rounded sums beside those of integers, on one thread.
//
//     sums_bench [elements]
//
// For each instruction set, element type and number of ranks, in ns an element, the least of
// some alternating runs:
//
//     scan                   which blocks a host sends, and their exponents
//     add                    an aggregator's part of a sum of 32-bit integers
//     exact, exact in place  exact_sums, of arrays in memory
//     block                  SumBlock, an aggregator's part: all contributions, and rounding
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "arithmetic/elements.hpp"
#include "arithmetic/instruction_set.hpp"
#include "engine/merge.hpp"
#include "sums/block_scan.hpp"
#include "sums/environment.hpp"
#include "sums/exact_sums.hpp"
#include "sums/sum_block.hpp"

namespace {

using namespace afflux;
using arithmetic::Dtype;
using Bytes = std::vector<unsigned char>;

constexpr int kRuns = 9;

double seconds() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(since).count();
}

struct Timed {
    const char* name;
    std::function<void()> run;
    std::vector<double> times{};
};

struct Data {
    Data(Dtype dtype_, int ranks_, std::size_t count_)
        : dtype(dtype_), ranks(ranks_), count(count_), out(count * arithmetic::size_of(dtype)) {
        std::mt19937 draw(1);
        std::normal_distribution<double> normal(0, 1e-3);
        for (int r = 0; r < ranks; ++r) {
            tensors.emplace_back(out.size());
            for (std::size_t i = 0; i < count; ++i) {
                const double value = std::ldexp(normal(draw), -static_cast<int>(draw() % 6));
                arithmetic::put_bits(dtype, tensors.back().data(), i,
                                     arithmetic::round_to(arithmetic::format_of(dtype), value));
            }
        }
        copies = tensors;
        for (int r = 0; r < ranks; ++r) {
            sources.push_back(tensors[static_cast<std::size_t>(r)].data());
            places.push_back(copies[static_cast<std::size_t>(r)].data());
        }
    }

    Dtype dtype;
    int ranks;
    std::size_t count;
    Bytes out;
    std::vector<Bytes> tensors, copies;
    std::vector<const void*> sources;
    std::vector<void*> places;
};

void engine_blocks(Data& data) {
    const sums::Environment environment;
    static sums::SumBlock block;
    for (std::size_t at = 0; at < data.out.size(); at += wire::kBlockBytes) {
        block.open(environment, data.dtype, data.tensors[0].data() + at);
        for (std::size_t r = 1; r < data.tensors.size(); ++r) {
            block.add(environment, data.tensors[r].data() + at);
        }
        block.round(environment, 0, true, data.out.data() + at);
    }
}

void compare(Dtype dtype, int ranks, std::size_t count) {
    Data data(dtype, ranks, count);
    const std::size_t blocks = data.out.size() / wire::kBlockBytes;
    std::vector<std::uint8_t> exponents(blocks);
    Bytes total(data.out.size());
    const sums::Sum sum{dtype};
    std::vector<Timed> all{
        {"scan", [&] { sums::scan_blocks(dtype, data.sources[0], blocks, exponents.data()); }},
        {"add",
         [&] {
             for (std::size_t at = 0; at < total.size(); at += wire::kBlockBytes) {
                 auto* into = reinterpret_cast<std::int32_t*>(&total[at]);
                 std::memcpy(into, &data.tensors[0][at], wire::kBlockBytes);
                 for (std::size_t r = 1; r < data.tensors.size(); ++r) {
                     engine::merge(wire::Opcode::Sum, into, &data.tensors[r][at]);
                 }
             }
         }},
        {"exact",
         [&] { sums::exact_sums(sum, count, ranks, data.sources.data(), data.out.data()); }},
        {"exact in place",
         [&] {
             sums::exact_sums(sum, count, ranks, data.places.data(), ranks, data.places.data());
         }},
        {"block", [&] { engine_blocks(data); }},
    };
    for (int run = 0; run < kRuns; ++run) {
        for (Timed& each : all) {
            // Sums of sums grow; their cost is to be that of gradients.
            data.copies = data.tensors;
            for (std::size_t r = 0; r < data.copies.size(); ++r) {
                data.places[r] = data.copies[r].data();
            }
            const double start = seconds();
            each.run();
            each.times.push_back(seconds() - start);
        }
    }
    std::printf("%-8s dtype %d, %2d ranks:", arithmetic::instruction_set().c_str(),
                static_cast<int>(dtype), ranks);
    for (Timed& each : all) {
        std::sort(each.times.begin(), each.times.end());
        std::printf("  %s %.3f", each.name, each.times[0] * 1e9 / double(count));
    }
    std::printf("\n");
    std::fflush(stdout);
}

}  // namespace

int main(int arguments, char** values) {
    const std::size_t asked = arguments > 1 ? std::strtoull(values[1], nullptr, 10) : 1 << 20;
    const std::size_t count = (asked + 127) / 128 * 128;
    for (const std::string& name : arithmetic::instruction_sets()) {
        arithmetic::use_instruction_set(name);
        for (const Dtype dtype : {Dtype::Float32, Dtype::Float16, Dtype::Bfloat16}) {
            for (const int ranks : {2, 4, 8}) compare(dtype, ranks, count);
        }
    }
}
