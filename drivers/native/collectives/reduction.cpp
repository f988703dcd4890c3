#include "collectives/reduction.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

#include "arithmetic/elementwise.hpp"
#include "collectives/presence.hpp"
#include "sums/exact_sums.hpp"
#include "sums/extreme.hpp"

namespace afflux::collectives {
namespace {

// Blocks of all ranks that are reduced in place at a time, while they are in the nearest cache.
constexpr std::size_t kTogether = 32;

// The type of elements that are reduced as they are, if they can be.
std::optional<arithmetic::Plain> plain(Dtype dtype) {
    switch (dtype) {
        case Dtype::Int64:
            return arithmetic::Plain::Int64;
        case Dtype::Int32:
            return arithmetic::Plain::Int32;
        case Dtype::Int16:
            return arithmetic::Plain::Int16;
        case Dtype::Int8:
            return arithmetic::Plain::Int8;
        case Dtype::Uint8:
            return arithmetic::Plain::Uint8;
        case Dtype::Float64:
            return arithmetic::Plain::Float64;
        default:
            return std::nullopt;
    }
}

static_assert(static_cast<int>(Op::Product) == static_cast<int>(arithmetic::PlainOp::Product));
static_assert(static_cast<int>(Dtype::Bfloat16) == static_cast<int>(sums::Dtype::Bfloat16));

// Zeros change no sum. An average of integers counts those that it is of.
constexpr bool is_scanned(Dtype dtype, Op op) {
    if (is_rounded(dtype)) return op == Op::Sum || op == Op::Avg;
    return op == Op::Sum && dtype != Dtype::Float64;
}

}  // namespace

arithmetic::Plain plain_of(Dtype dtype) {
    const auto found = plain(dtype);
    if (!found)
        throw std::invalid_argument("no plain dtype: " + std::to_string(static_cast<int>(dtype)));
    return *found;
}

Reduction::Reduction(int ranks, Dtype dtype, Op op)
    : ranks_(ranks), dtype_(dtype), op_(op), scanned_(is_scanned(dtype, op)) {
    if (is_rounded(dtype) ? op > Op::Min : !plain(dtype))
        throw std::invalid_argument("no reduction " + std::to_string(static_cast<int>(op)) +
                                    " of dtype " + std::to_string(static_cast<int>(dtype)));
}

std::size_t Reduction::take(const std::byte* from, std::size_t count, std::byte* out,
                            std::uint8_t* present) const {
    const std::size_t bytes = count * element_bytes();
    if (scanned_)
        return out ? copy_present(from, bytes, out, present) : find_present(from, bytes, present);
    if (out) std::memcpy(out, from, bytes);
    return 0;
}

// Reduces `count` elements, in whole blocks, of those sources that are there.
void Reduction::combine(std::size_t count, int sources, const void* const* elements,
                        bool all_present, int outs, void* const* out) const {
    const auto copy = [&] {
        for (int k = 1; k < outs; ++k) std::memcpy(out[k], out[0], count * element_bytes());
    };
    if (!is_rounded(dtype_)) {
        arithmetic::reduce_plain(plain_of(dtype_), static_cast<arithmetic::PlainOp>(op_), count,
                                 sources, elements, out[0]);
        return copy();
    }
    const auto dtype = static_cast<sums::Dtype>(dtype_);
    if (op_ == Op::Max || op_ == Op::Min) {
        sums::extremes(dtype, op_ == Op::Max, count / block(), sources, elements, out[0]);
        return copy();
    }
    const bool average = op_ == Op::Avg;
    const sums::Sum sum{dtype, average ? sums::average_scale(ranks_) : 0, all_present};
    if (!average || (ranks_ & (ranks_ - 1)) == 0) {
        sums::exact_sums(sum, count, sources, elements, outs, out);
        return;
    }
    // A scale alone does not make it an average.
    sums::exact_sums(sum, count, sources, elements, 1, out);
    sums::divide(dtype, ranks_, count, out[0]);
    copy();
}

// Reduces blocks that the same sources have.
void Reduction::reduce_run(std::size_t first, std::size_t last, std::uint64_t having,
                           bool all_present, const void* const* elements, std::byte* out,
                           std::uint8_t* some, std::byte* also) const {
    std::fill(some + first, some + last, std::uint8_t{having != 0});
    if (!having) return;
    const std::size_t begin = first * kBlockBytes;
    std::array<const void*, arithmetic::kMaxRanks> here;
    int sources = 0;
    for (int r = 0; r < ranks_; ++r)
        if (having >> r & 1)
            here[static_cast<std::size_t>(sources++)] =
                static_cast<const std::byte*>(elements[r]) + begin;
    void* const to[] = {out + begin, also ? also + begin : nullptr};
    combine((last - first) * block(), sources, here.data(), all_present, also ? 2 : 1, to);
}

void Reduction::reduce(std::size_t blocks, const void* const* elements,
                       const std::uint8_t* const* present, std::byte* out, std::uint8_t* some,
                       std::byte* also) const {
    const std::uint64_t all = ~std::uint64_t{0} >> (64 - ranks_);
    const auto run = [&](std::size_t first, std::size_t last, std::uint64_t having) {
        reduce_run(first, last, having, having == all, elements, out, some, also);
    };
    if (scanned_)
        for_runs_of_ranks(ranks_, present, blocks, run);
    else if (blocks)
        run(0, blocks, all);
}

void Reduction::reduce_terms(std::size_t blocks, const void* const* elements,
                             const std::uint8_t* const* present, std::uint64_t firsts,
                             std::byte* out, std::uint8_t* some) const {
    for_runs_of_ranks(ranks_, present, blocks,
                      [&](std::size_t first, std::size_t last, std::uint64_t having) {
                          reduce_run(first, last, having, (having & firsts) == firsts, elements,
                                     out, some, nullptr);
                      });
}

void Reduction::reduce_all(std::size_t count, const void* const* elements,
                           const std::uint8_t* const* present, std::byte* out,
                           std::uint8_t* some) const {
    // Whole blocks go directly to where they belong, the last one, if it is short, through the
    // stack.
    const std::size_t whole = count / block(), rest = count % block() * element_bytes();
    const std::size_t end = whole * kBlockBytes;
    reduce(whole, elements, present, out, some);
    if (rest) {
        alignas(64) std::array<std::byte, kBlockBytes> last;
        std::array<const void*, arithmetic::kMaxRanks> last_elements;
        std::array<const std::uint8_t*, arithmetic::kMaxRanks> last_present;
        for (int r = 0; r < ranks_; ++r) {
            const auto i = static_cast<std::size_t>(r);
            last_elements[i] = static_cast<const std::byte*>(elements[r]) + end;
            last_present[i] = present[r] + whole;
        }
        reduce(1, last_elements.data(), last_present.data(), last.data(), some + whole);
        if (some[whole]) std::memcpy(out + end, last.data(), rest);
    }
    for_runs(some, whole + (rest != 0), [&](std::size_t first, std::size_t last, bool is_there) {
        if (is_there) return;
        const std::size_t begin = first * kBlockBytes;
        std::memset(out + begin, 0, std::min(last * kBlockBytes, end + rest) - begin);
    });
}

void Reduction::reduce_blocks_in_place(std::size_t blocks, void* const* elements) const {
    std::array<std::uint8_t, kTogether> some;
    std::array<void*, arithmetic::kMaxRanks> here;
    const auto point = [&](std::size_t block) {
        for (int r = 0; r < ranks_; ++r)
            here[static_cast<std::size_t>(r)] =
                static_cast<std::byte*>(elements[r]) + block * kBlockBytes;
    };
    const std::size_t most = std::max<std::size_t>(1, kTogether / static_cast<std::size_t>(ranks_));
    for (std::size_t done = 0; done < blocks; done += most) {
        const std::size_t together = std::min(most, blocks - done);
        point(done);
        if (scanned_)
            find_present_anywhere(ranks_, here.data(), together, some.data());
        else
            std::fill_n(some.begin(), together, std::uint8_t{1});
        for_runs(some.data(), together, [&](std::size_t first, std::size_t last, bool is_there) {
            if (!is_there) return;
            point(done + first);
            combine((last - first) * block(), ranks_, here.data(), true, ranks_, here.data());
        });
    }
}

void Reduction::reduce_in_place(std::size_t count, void* const* elements) const {
    const std::size_t whole = count / block(), rest = count % block() * element_bytes();
    const std::size_t end = whole * kBlockBytes;
    reduce_blocks_in_place(whole, elements);
    if (!rest) return;
    alignas(64) std::array<std::array<std::byte, kBlockBytes>, arithmetic::kMaxRanks> tails;
    std::array<const void*, arithmetic::kMaxRanks> padded;
    for (int r = 0; r < ranks_; ++r) {
        auto& tail = tails[static_cast<std::size_t>(r)];
        std::memcpy(tail.data(), static_cast<std::byte*>(elements[r]) + end, rest);
        std::memset(tail.data() + rest, 0, kBlockBytes - rest);
        padded[static_cast<std::size_t>(r)] = tail.data();
    }
    void* const out = tails[0].data();
    combine(block(), ranks_, padded.data(), true, 1, &out);
    for (int r = 0; r < ranks_; ++r)
        std::memcpy(static_cast<std::byte*>(elements[r]) + end, tails[0].data(), rest);
}

}  // namespace afflux::collectives
