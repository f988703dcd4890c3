#include "collectives/terms.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "arithmetic/elementwise.hpp"
#include "collectives/presence.hpp"
#include "collectives/reduction.hpp"
#include "sums/exact_sums.hpp"
#include "sums/extreme.hpp"
#include "sums/sum_block.hpp"

namespace afflux::collectives {
namespace {

// More are seldom of any help.
constexpr int kMostTerms = 3;

}  // namespace

Terms::Terms(int sources, Dtype dtype, Op op, std::optional<int> scale)
    : sources_(sources),
      dtype_(dtype),
      op_(op),
      way_(way_of(sources, dtype, op, scale.has_value())),
      scale_(scale.value_or(0)) {}

Terms::Way Terms::way_of(int sources, Dtype dtype, Op op, bool rounded) {
    const bool extreme = op == Op::Max || op == Op::Min;
    if (is_rounded(dtype) && !extreme && rounded) return Way::Rounded;
    if (sources == 1) return Way::AsTheyAre;
    if (is_rounded(dtype)) return extreme ? Way::Extremes : Way::Sum;
    // An average counts the ranks, and of float64 the order of the additions matters.
    if (op == Op::Avg || (dtype == Dtype::Float64 && !extreme)) return Way::AsTheyAre;
    return Way::Plain;
}

int Terms::copy_all(std::size_t at, const std::byte* const* sources, std::byte* const* to) const {
    for (int s = 0; s < sources_; ++s) std::memcpy(to[s], sources[s] + at, kBlockBytes);
    return sources_;
}

// Writes the terms of one block, which the sources in `having` have.
int Terms::terms_of(std::size_t at, const std::byte* const* sources, std::uint64_t having,
                    std::byte* const* to) const {
    std::array<const void*, arithmetic::kMaxRanks> here;
    int count = 0;
    for (int s = 0; s < sources_; ++s)
        if (having >> s & 1) here[static_cast<std::size_t>(count++)] = sources[s] + at;
    switch (way_) {
        case Way::Extremes:
            sums::extremes(static_cast<sums::Dtype>(dtype_), op_ == Op::Max, 1, count, here.data(),
                           to[0]);
            return 1;
        case Way::Plain:
            arithmetic::reduce_plain(plain_of(dtype_), static_cast<arithmetic::PlainOp>(op_),
                                     kBlockBytes / size_of(dtype_), count, here.data(), to[0]);
            return 1;
        case Way::AsTheyAre:
            return copy_all(at, sources, to);
        case Way::Rounded:
            sums::exact_sums({static_cast<sums::Dtype>(dtype_), scale_, count == sources_},
                             kBlockBytes / size_of(dtype_), count, here.data(), to[0]);
            return 1;
        case Way::Sum:
            break;
    }
    const sums::Environment environment;
    sums::SumBlock sum;
    sum.open(environment, static_cast<sums::Dtype>(dtype_), here[0]);
    for (int s = 1; s < count; ++s) sum.add(environment, here[static_cast<std::size_t>(s)]);
    void* terms[kMostTerms];
    const int most = std::min(sources_ - 1, kMostTerms);
    for (int k = 0; k < most; ++k) terms[k] = to[k];
    const int found = sum.split(environment, most, count == sources_, terms);
    return found ? found : copy_all(at, sources, to);
}

void Terms::make(std::size_t blocks, const std::byte* const* sources, bool zeros_are_none,
                 std::byte* out, std::size_t apart, std::uint8_t* present) const {
    const auto n = static_cast<std::size_t>(sources_);
    // Of each source first whether it has a block, then whether the block has so many terms.
    for (std::size_t s = 0; s < n; ++s) {
        if (zeros_are_none)
            find_present(sources[s], blocks * kBlockBytes, present + s * blocks);
        else
            std::fill_n(present + s * blocks, blocks, std::uint8_t{1});
    }
    std::array<std::byte*, arithmetic::kMaxRanks> to;
    for (std::size_t b = 0; b < blocks; ++b) {
        std::uint64_t having = 0;
        for (std::size_t s = 0; s < n; ++s)
            having |= std::uint64_t{present[s * blocks + b] != 0} << s;
        const std::size_t at = b * kBlockBytes;
        for (std::size_t s = 0; s < n; ++s) to[s] = out + s * apart + at;
        const int terms = having ? terms_of(at, sources, having, to.data()) : 0;
        for (std::size_t s = 0; s < n; ++s)
            present[s * blocks + b] = s < static_cast<std::size_t>(terms);
    }
}

}  // namespace afflux::collectives
