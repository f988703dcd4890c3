// Terms of hosts in place of their ranks' elements: the same bits, for numbers of any spread,
// signed zeros, infinities and NaN among them in one block.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

#include "collectives/packed_terms.hpp"
#include "collectives/reduction.hpp"
#include "collectives/terms.hpp"
#include "tests/collectives_ranks.hpp"

namespace {

using namespace afflux;
using namespace afflux::tests;
using collectives::Dtype;
using collectives::kBlockBytes;
using collectives::Op;
using collectives::Reduction;
using collectives::Terms;

constexpr std::size_t kBlocks = 24;
constexpr std::size_t kBytes = kBlocks * kBlockBytes;

// Blocks of one rank. Some have no bit; in others all ranks have -0 at the same places.
Bytes make_blocks(Dtype dtype, std::uint64_t places, Random& random) {
    Bytes all(kBytes);
    const std::size_t size = collectives::size_of(dtype);
    for (std::size_t b = 0; b < kBlocks; ++b) {
        if (random() % 6 == 0) continue;
        // From all of one size to all of any.
        const std::uint64_t spread = b % 4 == 0 ? 2 : b % 4 == 1 ? 12 : b % 4 == 2 ? 40 : 255;
        for (std::size_t i = 0; i < kBlockBytes; i += size) {
            std::uint64_t bits = random();
            if (size == 4 && dtype == Dtype::Float32) {
                const std::uint64_t exponent =
                    spread == 255 ? random() % 255 : 120 + random() % spread;
                bits = (bits & 0x807FFFFF) | exponent << 23;
                if (places >> (i / size % 64) & 1) bits = 0x80000000;
                if (random() % 3000 == 0) bits = random() % 2 ? 0x7F800000 : 0x7FC00001;
            } else if (dtype == Dtype::Float16 || dtype == Dtype::Bfloat16) {
                const int fraction = dtype == Dtype::Float16 ? 10 : 7;
                const std::uint64_t most = dtype == Dtype::Float16 ? 31 : 255;
                const std::uint64_t exponent =
                    spread == 255 ? random() % most
                                  : most / 2 + random() % (spread / 2 + 1) % (most / 2);
                bits = (bits & 0x8000) | exponent << fraction |
                       (bits & ((std::uint64_t{1} << fraction) - 1));
                if (places >> (i / size % 64) & 1) bits = 0x8000;
            }
            std::memcpy(all.data() + b * kBlockBytes + i, &bits, size);
        }
        if (dtype == Dtype::Float64)
            for (std::size_t i = 0; i < kBlockBytes; i += 8) {
                const double value =
                    static_cast<double>(static_cast<std::int64_t>(random())) * 0x1p-70;
                std::memcpy(all.data() + b * kBlockBytes + i, &value, 8);
            }
    }
    return all;
}

// How many blocks had one, two, … terms.
std::array<std::size_t, 16> counts{};

void test(const std::vector<int>& hosts, Dtype dtype, Op op, Random& random) {
    std::size_t ranks = 0;
    for (const int each : hosts) ranks += static_cast<std::size_t>(each);
    const Reduction reduction(static_cast<int>(ranks), dtype, op);
    const std::uint64_t places = random() & random() & random();
    std::vector<Bytes> tensors;
    for (std::size_t r = 0; r < ranks; ++r) tensors.push_back(make_blocks(dtype, places, random));

    std::vector<const void*> elements;
    std::vector<std::vector<std::uint8_t>> flags(ranks, std::vector<std::uint8_t>(kBlocks));
    std::vector<const std::uint8_t*> present;
    for (std::size_t r = 0; r < ranks; ++r) {
        reduction.take(tensors[r].data(), kBytes / collectives::size_of(dtype), nullptr,
                       flags[r].data());
        elements.push_back(tensors[r].data());
        present.push_back(flags[r].data());
    }
    Bytes right(kBytes), got(kBytes);
    std::vector<std::uint8_t> some(kBlocks);
    reduction.reduce(kBlocks, elements.data(), present.data(), right.data(), some.data());

    std::vector<Bytes> terms;
    std::vector<std::vector<std::uint8_t>> of_host;
    std::uint64_t firsts = 0;
    elements.clear();
    present.clear();
    for (std::size_t h = 0, first = 0; h < hosts.size(); ++h) {
        const auto sources = static_cast<std::size_t>(hosts[h]);
        std::vector<const std::byte*> here;
        for (std::size_t s = 0; s < sources; ++s) here.push_back(tensors[first + s].data());
        terms.emplace_back(sources * kBytes);
        of_host.emplace_back(sources * kBlocks);
        Terms(hosts[h], dtype, op)
            .make(kBlocks, here.data(), reduction.scanned(), terms.back().data(), kBytes,
                  of_host.back().data());
        firsts |= std::uint64_t{1} << first;
        for (std::size_t s = 0; s < sources; ++s) {
            elements.push_back(terms.back().data() + s * kBytes);
            present.push_back(of_host.back().data() + s * kBlocks);
        }
        for (std::size_t b = 0; b < kBlocks; ++b) {
            std::size_t count = 0;
            for (std::size_t s = 0; s < sources; ++s) count += of_host.back()[s * kBlocks + b];
            ++counts[count];
        }
        first += sources;
    }
    std::vector<std::uint8_t> some_terms(kBlocks);
    reduction.reduce_terms(kBlocks, elements.data(), present.data(), firsts, got.data(),
                           some_terms.data());
    CHECK(some == some_terms);
    CHECK(got == right);
}

// Terms that are packed and unpacked have the same sums. Others that need more bits are refused,
// and so are -0, infinities and NaN.
void test_packing(Random& random) {
    constexpr std::size_t kElements = kBlockBytes / sizeof(float);
    std::array<std::byte, collectives::kPackedBytes> packed;
    const auto random_float = [&](std::uint64_t exponent) {
        const std::uint64_t bits = (random() & 0x807FFFFF) | exponent << 23;
        return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    };
    const auto bytes = [](auto& block) { return reinterpret_cast<std::byte*>(block.data()); };
    std::size_t done = 0;
    for (int repeat = 0; repeat < 4000; ++repeat) {
        std::array<float, kElements> one, other, first, second;
        const std::uint64_t base = random() % 240, spread = 1 + random() % 18;
        for (std::size_t i = 0; i < kElements; ++i) {
            one[i] = random_float(base + random() % spread);
            other[i] = random() % 8 ? random_float(base + random() % spread) : -one[i];
            if (random() % 8 == 0) other[i] = -0.0f;
        }
        // The lowest bit of any, below the largest of all: a bit for the sum's carry is left.
        int low = 1000, high = -1000;
        for (const auto& block : {one, other})
            for (const float each : block) {
                if (each == 0) continue;
                const auto bits = std::bit_cast<std::uint32_t>(each);
                const int exponent = std::max(1, static_cast<int>(bits >> 23 & 255));
                const std::uint32_t fraction =
                    (bits & 0x7FFFFF) | (bits >> 23 & 255 ? 0x800000 : 0);
                low = std::min(low, exponent + std::countr_zero(fraction) - 23);
                high = std::max(high, exponent);
            }
        const bool fits = high - low <= 37;
        CHECK(collectives::pack_terms(bytes(one), bytes(other), packed.data()) == fits);
        if (!fits) continue;
        ++done;
        CHECK(collectives::unpack_terms(packed.data(), bytes(first), bytes(second)));
        for (std::size_t i = 0; i < kElements; ++i) {
            // Exact, as the sum has 40 bits.
            const double sum = static_cast<double>(one[i]) + static_cast<double>(other[i]);
            CHECK(first[i] == static_cast<float>(sum));
            CHECK(static_cast<double>(first[i]) + static_cast<double>(second[i]) == sum);
            if (second[i] == 0) CHECK(std::signbit(second[i]) || sum != first[i]);
            if (first[i] == 0) CHECK(!std::signbit(first[i]));
        }
    }
    CHECK(done > 1000 && done < 4000);
    for (const float bad : {-0.0f, 0x1p127f, std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
        std::array<float, kElements> one{}, other{};
        one[13] = bad;
        other[13] = -0.0f;
        CHECK(!collectives::pack_terms(bytes(one), bytes(other), packed.data()));
        CHECK(!collectives::pack_terms(bytes(other), bytes(one), packed.data()));
    }
    for (const std::int32_t unit : {-164, 90, 1 << 30, -(1 << 30)}) {
        std::array<float, kElements> first, second;
        std::memcpy(packed.data(), &unit, sizeof unit);
        CHECK(!collectives::unpack_terms(packed.data(), bytes(first), bytes(second)));
    }
}

}  // namespace

int main() {
    Random random(1);
    test_packing(random);
    const std::vector<int> kHosts[] = {{2, 2},       {1, 3},    {4, 4}, {8, 8},
                                       {2, 2, 2, 2}, {1, 1, 5}, {2}};
    for (int round = 0; round < 10; ++round)
        for (const auto& hosts : kHosts)
            for (unsigned dtype = 0; dtype + 1 < collectives::kDtypes; ++dtype)
                for (unsigned op = 0; op < collectives::kOps; ++op) {
                    const auto type = static_cast<Dtype>(dtype);
                    if (collectives::is_rounded(type) && static_cast<Op>(op) == Op::Product)
                        continue;
                    test(hosts, type, static_cast<Op>(op), random);
                }
    // Each way is taken: none, one, two and three terms, and blocks as they are.
    for (std::size_t count = 0; count <= 4; ++count) CHECK(counts[count] != 0);
    CHECK(counts[8] != 0);
    std::printf("blocks with 0, 1, … terms:");
    for (const std::size_t count : counts) std::printf(" %zu", count);
    std::printf("\n");
}
