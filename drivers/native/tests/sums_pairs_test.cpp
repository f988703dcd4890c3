// Sums of two bfloat16, of which there are 2**32, and averages of all numbers of 16 bits.
//
//     sums_pairs_test [long]
//
// The long test takes all pairs, which is some minutes. The other one pairs every 4093rd number
// with all, and divides for a few numbers of ranks.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "arithmetic/instruction_set.hpp"
#include "check.hpp"
#include "sums/exact_sums.hpp"
#include "sums_reference.hpp"

namespace {

using namespace afflux;
using sums::Dtype;
using Words = std::vector<std::uint16_t>;

constexpr std::uint32_t kAll = 1 << 16;

// A bfloat16 with a sign, in units of 2**-133 from which `shift` zero bits have been taken.
struct Parts {
    int shift;
    std::int64_t significand;
};

Parts parts_of(std::uint32_t bits) {
    const int field = static_cast<int>(bits >> 7 & 255);
    const std::int64_t significand = (bits & 127) | (field ? 128 : 0);
    return {field ? field - 1 : 0, bits >> 15 ? -significand : significand};
}

// The sum of two finite ones. A much smaller one is no more than a trace below the last bit.
std::uint32_t finite_sum(std::uint32_t a, std::uint32_t b) {
    Parts large = parts_of(a), small = parts_of(b);
    if (small.shift > large.shift) std::swap(large, small);
    constexpr int kRoom = 40;
    const int distance = large.shift - small.shift;
    std::int64_t sum = large.significand << kRoom;
    if (distance <= kRoom) {
        sum += small.significand << (kRoom - distance);
    } else if (large.significand != 0) {
        sum += (small.significand > 0) - (small.significand < 0);
    } else {
        return b;
    }
    if (sum == 0) return a == 0x8000 && b == 0x8000 ? 0x8000 : 0;
    reference::Integer magnitude;
    magnitude.add(static_cast<std::uint64_t>(std::abs(sum)), 0, false);
    const int unit = reference::kBfloat16.least() + large.shift - kRoom;
    return reference::nearest(reference::kBfloat16, magnitude, unit) | (sum < 0 ? 0x8000u : 0u);
}

std::uint32_t sum_of(std::uint32_t a, std::uint32_t b) {
    const auto special = [](std::uint32_t bits) { return (bits & 0x7F80) == 0x7F80; };
    if (!special(a) && !special(b)) return finite_sum(a, b);
    const std::uint32_t both[] = {a, b};
    return reference::sum(reference::kBfloat16, 0, 2, true, [&](int r) { return both[r]; });
}

void check_pairs(std::uint32_t stride) {
    Words first(kAll), second(kAll), out(kAll), other(kAll);
    for (std::uint32_t i = 0; i < kAll; ++i) second[i] = static_cast<std::uint16_t>(i);
    const void* const sources[] = {first.data(), second.data()};
    const void* const exchanged[] = {second.data(), first.data()};
    const sums::Sum sum{Dtype::Bfloat16};
    std::size_t pairs = 0, differences = 0, one_by_one = 0;
    for (std::uint32_t a = 0; a < kAll; a += stride) {
        first.assign(kAll, static_cast<std::uint16_t>(a));
        one_by_one += sums::exact_sums(sum, kAll, 2, sources, out.data());
        // With a stride of 1 the sum of b and a has been compared when b was the first.
        const std::uint32_t from = stride == 1 ? a : 0;
        for (std::uint32_t b = from; b < kAll; ++b) differences += out[b] != sum_of(a, b);
        sums::exact_sums(sum, kAll, 2, exchanged, other.data());
        for (std::uint32_t b = 0; b < kAll; ++b) differences += out[b] != other[b];
        pairs += kAll;
    }
    std::printf("%zu pairs of bfloat16, %zu differences, %zu one by one\n", pairs, differences,
                one_by_one);
    CHECK(differences == 0);
}

// Every number divided by ranks / 2**scale.
void check_averages(Dtype dtype, reference::Kind kind, bool all) {
    for (int ranks = 1; ranks <= 64; ranks += all ? 1 : 6) {
        Words elements(kAll);
        for (std::uint32_t i = 0; i < kAll; ++i) elements[i] = static_cast<std::uint16_t>(i);
        const int scale = sums::average_scale(ranks);
        if (ranks == 1 << scale) continue;
        sums::divide(dtype, ranks, kAll, elements.data());
        for (std::uint32_t bits = 0; bits < kAll; ++bits) {
            const std::uint32_t sign = bits & kind.sign(), magnitude = bits ^ sign;
            std::uint32_t want = bits;
            if (magnitude > kind.infinity()) {
                want = kind.nan();
            } else if (magnitude && magnitude < kind.infinity()) {
                const std::uint32_t field = magnitude >> kind.fraction;
                const std::uint32_t fraction = magnitude & ((1u << kind.fraction) - 1);
                const std::uint64_t significand = fraction | (field ? 1u << kind.fraction : 0);
                constexpr int kRoom = 40;
                const std::uint64_t divided = significand << (kRoom + scale);
                const auto by = static_cast<std::uint64_t>(ranks);
                reference::Integer quotient;
                // With a trace of the remainder.
                quotient.add(divided / by << 1 | (divided % by != 0), 0, false);
                const int power = static_cast<int>(field ? field - 1 : 0) - kRoom - 1;
                want = reference::nearest(kind, quotient, kind.least() + power) | sign;
            }
            CHECK(elements[bits] == want);
        }
    }
}

}  // namespace

int main(int arguments, char** values) {
    const bool all = arguments > 1 && std::strcmp(values[1], "long") == 0;
    const std::string best = arithmetic::instruction_sets().back();
    for (const std::string& name : arithmetic::instruction_sets()) {
        arithmetic::use_instruction_set(name);
        check_pairs(all && name == best ? 1 : 4093);
    }
    check_averages(Dtype::Float16, reference::kFloat16, all);
    check_averages(Dtype::Bfloat16, reference::kBfloat16, all);
}
