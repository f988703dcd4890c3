// Sums of arrays and of blocks are those of an independent reference, for every family of elements,
// element type, number of ranks and instruction set, and in any order of the contributions.
//
//     sums_families_test [long]
//
// The long test takes 10**8 elements, which is some minutes, the other one 3 * 10**5.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "arithmetic/instruction_set.hpp"
#include "check.hpp"
#include "sums/environment.hpp"
#include "sums/exact_sums.hpp"
#include "sums/sum_block.hpp"
#include "sums_elements.hpp"
#include "sums_reference.hpp"

namespace {

using namespace afflux;
using families::Family;
using sums::Dtype;
using sums::Sum;
using Bytes = std::vector<unsigned char>;

constexpr int kRanks[] = {1, 2, 3, 8, 64};

reference::Kind kind_of(Dtype dtype) {
    if (dtype == Dtype::Float32) return reference::kFloat32;
    return dtype == Dtype::Float16 ? reference::kFloat16 : reference::kBfloat16;
}

struct Totals {
    std::size_t elements = 0, one_by_one = 0, blocks = 0, not_summed = 0;
};

// The ranks' tensors, and the reference's sums.
struct Case {
    Case(Dtype dtype, Family family, int ranks, std::size_t count, const Sum& sum_, unsigned seed)
        : sum(sum_), count_(count), want(count * arithmetic::size_of(dtype)) {
        families::Elements elements(dtype, family, seed);
        tensors.assign(static_cast<std::size_t>(ranks), Bytes(want.size()));
        std::vector<std::uint32_t> column;
        for (std::size_t i = 0; i < count; ++i) {
            elements.column(ranks, column);
            for (std::size_t r = 0; r < tensors.size(); ++r) {
                arithmetic::put_bits(dtype, tensors[r].data(), i, column[r]);
            }
            const auto at = [&](int r) { return column[static_cast<std::size_t>(r)]; };
            const std::uint32_t bits =
                reference::sum(kind_of(dtype), sum.scale, ranks, sum.all_present, at);
            arithmetic::put_bits(dtype, want.data(), i, bits);
        }
        order.resize(tensors.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
    }

    std::vector<const void*> sources() const {
        std::vector<const void*> found;
        for (const std::size_t r : order) found.push_back(tensors[r].data());
        return found;
    }

    Sum sum;
    std::size_t count_;
    Bytes want;
    std::vector<Bytes> tensors;
    std::vector<std::size_t> order;
};

void expect_same(const Case& given, const unsigned char* found, std::size_t from, std::size_t bytes,
                 const char* what) {
    if (std::memcmp(found, given.want.data() + from, bytes) == 0) return;
    const Dtype dtype = given.sum.dtype;
    for (std::size_t i = 0; i < bytes / arithmetic::size_of(dtype); ++i) {
        const std::size_t place = from / arithmetic::size_of(dtype) + i;
        const std::uint32_t is = arithmetic::bits_at(dtype, found, i);
        const std::uint32_t should = arithmetic::bits_at(dtype, given.want.data(), place);
        if (is == should) continue;
        std::fprintf(stderr, "%s: dtype %d, %zu ranks, scale %d, element %zu: %08x, not %08x\n",
                     what, static_cast<int>(dtype), given.tensors.size(), given.sum.scale, place,
                     is, should);
        for (const Bytes& tensor : given.tensors) {
            std::fprintf(stderr, "  %08x\n", arithmetic::bits_at(dtype, tensor.data(), place));
        }
        CHECK(is == should);
    }
}

void check_arrays(const Case& given, Totals& totals) {
    const auto sources = given.sources();
    const int ranks = static_cast<int>(sources.size());
    Bytes out(given.want.size());
    totals.one_by_one +=
        sums::exact_sums(given.sum, given.count_, ranks, sources.data(), out.data());
    totals.elements += given.count_;
    expect_same(given, out.data(), 0, out.size(), "exact_sums");
    std::vector<Bytes> own = given.tensors;
    std::vector<void*> at;
    for (Bytes& tensor : own) at.push_back(tensor.data());
    sums::exact_sums(given.sum, given.count_, ranks, at.data(), ranks, at.data());
    for (const Bytes& tensor : own) {
        expect_same(given, tensor.data(), 0, tensor.size(), "exact_sums in place");
    }
}

void check_blocks(const Case& given, Totals& totals) {
    const sums::Environment environment;
    const unsigned char ones = 0xFF;
    for (std::size_t at = 0; at + wire::kBlockBytes <= given.want.size(); at += wire::kBlockBytes) {
        sums::SumBlock block;
        bool exact = true;
        for (const std::size_t r : given.order) {
            const unsigned char* from = given.tensors[r].data() + at;
            if (r == given.order[0]) {
                block.open(environment, given.sum.dtype, from);
            } else {
                exact = block.add(environment, from);
            }
        }
        unsigned char out[wire::kBlockBytes];
        block.round(environment, given.sum.scale, given.sum.all_present, out);
        ++totals.blocks;
        totals.not_summed += !exact;
        if (exact) {
            expect_same(given, out, at, sizeof out, "SumBlock");
        } else {
            for (const unsigned char byte : out) CHECK(byte == ones);
        }
    }
}

// Integers alone, which arrays only take where doubles fail.
void check_integers(const Case& given) {
    Bytes out(given.want.size());
    for (std::size_t i = 0; i < given.count_; ++i) {
        sums::ExactSum exact(given.sum);
        for (const Bytes& tensor : given.tensors) {
            exact.add(arithmetic::bits_at(given.sum.dtype, tensor.data(), i));
        }
        arithmetic::put_bits(given.sum.dtype, out.data(), i, exact.rounded());
    }
    expect_same(given, out.data(), 0, out.size(), "ExactSum");
}

// A block that could not hold a sum stays so, and the next one has nothing of it.
void check_recovery() {
    const sums::Environment environment;
    const std::vector<float> zeros(64, 0.0F), ones(64, 1.0F);
    std::vector<float> mixed = ones, out(64);
    mixed[17] = 0x1p-60F;
    sums::SumBlock block;
    block.open(environment, Dtype::Float32, ones.data());
    CHECK(!block.add(environment, mixed.data()));
    CHECK(!block.add(environment, zeros.data()));
    block.round(environment, 0, true, out.data());
    CHECK(arithmetic::bits_at(Dtype::Float32, out.data(), 0) == 0xFFFFFFFF);
    block.open(environment, Dtype::Float32, ones.data());
    CHECK(block.add(environment, ones.data()));
    block.round(environment, 1, true, out.data());
    CHECK(out == ones);
}

void check_family(Dtype dtype, Family family, std::size_t count) {
    Totals totals;
    unsigned seed = static_cast<unsigned>(family) * 100 + static_cast<unsigned>(dtype);
    for (const int ranks : kRanks) {
        // The scale of a sum, that of an average, and another one if a rank is missing.
        const Sum forms[] = {
            {dtype, 0, true}, {dtype, sums::average_scale(ranks), true}, {dtype, 6, false}};
        for (const Sum& sum : forms) {
            Case given(dtype, family, ranks, count, sum, ++seed);
            check_integers(given);
            std::mt19937 shuffle(seed);
            for (const std::string& name : arithmetic::instruction_sets()) {
                arithmetic::use_instruction_set(name);
                check_arrays(given, totals);
                check_blocks(given, totals);
                std::shuffle(given.order.begin(), given.order.end(), shuffle);
            }
        }
    }
    std::printf(
        "dtype %d family %d: %zu elements, %.3f%% one by one; %zu blocks, %.3f%% not summed\n",
        static_cast<int>(dtype), static_cast<int>(family), totals.elements,
        100.0 * static_cast<double>(totals.one_by_one) / static_cast<double>(totals.elements),
        totals.blocks,
        100.0 * static_cast<double>(totals.not_summed) / static_cast<double>(totals.blocks));
    // Doubles hold every sum of float16, and nearly all of tensors as they are.
    if (dtype == Dtype::Float16) CHECK(totals.one_by_one == 0 && totals.not_summed == 0);
    if (family == Family::Gradients) {
        CHECK(totals.one_by_one < totals.elements / 1000);
        CHECK(totals.not_summed < totals.blocks / 1000 + 1);
    }
    if (dtype != Dtype::Float16 && family == Family::AllExponents) {
        CHECK(totals.one_by_one > 0 && totals.not_summed > 0);
    }
}

}  // namespace

int main(int arguments, char** values) {
    const bool all = arguments > 1 && std::strcmp(values[1], "long") == 0;
    const std::size_t count = all ? 250'000 : 700;
    check_recovery();
    for (const Dtype dtype : {Dtype::Float32, Dtype::Float16, Dtype::Bfloat16}) {
        for (const Family family : families::kFamilies) check_family(dtype, family, count);
    }
}
