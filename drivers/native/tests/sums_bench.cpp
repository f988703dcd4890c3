// Times correctly rounded sums beside those by integers of an agreed exponent, on one thread.
//
//     sums_bench [elements]
//
// For each instruction set, element type and number of ranks, in ns an element, the least of
// some alternating runs:
//
//     scan, quantise, dequantise  a host's part of a sum by integers
//     add                         an aggregator's part of it
//     in place                    a sum by integers among ranks that share memory
//     exact, exact in place       exact_sums, which takes the place of both
//     exact of present            the same of blocks, all of which are there
//     block                       SumBlock: all contributions, and rounding
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "codec/elements.hpp"
#include "codec/instruction_set.hpp"
#include "codec/numbers.hpp"
#include "codec/quantise.hpp"
#include "codec/reduce.hpp"
#include "codec/scan.hpp"
#include "engine/merge.hpp"
#include "sums/environment.hpp"
#include "sums/exact_sums.hpp"
#include "sums/sum_block.hpp"

namespace {

using namespace afflux;
using codec::Dtype;
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
        : dtype(dtype_), ranks(ranks_), count(count_), out(count * codec::size_of(dtype)) {
        std::mt19937 draw(1);
        std::normal_distribution<double> normal(0, 1e-3);
        exponents.assign(codec::blocks_of(count), 0);
        std::vector<std::uint8_t> own(exponents.size());
        for (int r = 0; r < ranks; ++r) {
            tensors.emplace_back(out.size());
            for (std::size_t i = 0; i < count; ++i) {
                const double value = std::ldexp(normal(draw), -static_cast<int>(draw() % 6));
                codec::put_bits(dtype, tensors.back().data(), i,
                                codec::round_to(codec::format_of(dtype), value));
            }
            codec::scan(dtype, tensors.back().data(), count, own.data());
            for (std::size_t b = 0; b < own.size(); ++b)
                exponents[b] = std::max(exponents[b], own[b]);
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
    std::vector<std::uint8_t> exponents;
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
    const codec::Numbers numbers(ranks, dtype, codec::Op::Sum);
    const std::size_t blocks = count / codec::kBlock;
    std::vector<std::vector<std::int32_t>> integers;
    for (const Bytes& tensor : data.tensors) {
        integers.emplace_back(count);
        codec::quantise(numbers, blocks, tensor.data(), data.exponents.data(),
                        integers.back().data());
    }
    std::vector<std::int32_t> total(count), out(count);
    std::vector<std::uint8_t> exponents(blocks);
    const sums::Sum sum{dtype};
    const std::vector<std::uint8_t> present(data.out.size() / wire::kBlockBytes, 1);
    const std::vector<const std::uint8_t*> everywhere(data.sources.size(), present.data());
    std::vector<std::uint8_t> some(present.size());
    std::vector<Timed> all{
        {"scan", [&] { codec::scan(dtype, data.sources[0], count, exponents.data()); }},
        {"quantise",
         [&] {
             codec::quantise(numbers, blocks, data.sources[0], data.exponents.data(), out.data());
         }},
        {"dequantise",
         [&] {
             codec::dequantise(numbers, blocks, integers[0].data(), data.exponents.data(),
                               data.out.data());
         }},
        {"add",
         [&] {
             for (std::size_t b = 0; b < count; b += codec::kBlock) {
                 std::memcpy(&total[b], &integers[0][b], wire::kBlockBytes);
                 for (std::size_t r = 1; r < integers.size(); ++r) {
                     const auto* from = reinterpret_cast<const std::uint8_t*>(&integers[r][b]);
                     engine::merge(wire::Opcode::Sum, &total[b], from);
                 }
             }
         }},
        {"in place", [&] { codec::reduce_in_place(numbers, count, ranks, data.places.data()); }},
        {"exact",
         [&] { sums::exact_sums(sum, count, ranks, data.sources.data(), data.out.data()); }},
        {"exact in place",
         [&] { sums::exact_sums_in_place(sum, count, ranks, data.places.data()); }},
        {"exact of present",
         [&] {
             sums::exact_sums_of_present(sum, present.size(), ranks, data.sources.data(),
                                         everywhere.data(), data.out.data(), some.data());
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
    std::printf("%-8s dtype %d, %2d ranks:", codec::instruction_set().c_str(),
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
    for (const std::string& name : codec::instruction_sets()) {
        codec::use_instruction_set(name);
        for (const Dtype dtype : {Dtype::Float32, Dtype::Float16, Dtype::Bfloat16}) {
            for (const int ranks : {2, 4, 8}) compare(dtype, ranks, count);
        }
    }
}
