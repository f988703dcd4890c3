#include "shared/floats.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "contract/wire.hpp"
#include "shared/presence.hpp"
#include "sums/extreme.hpp"

namespace afflux::shared {
namespace {

using wire::kBlockBytes;

// Blocks of all ranks that are reduced in place at a time, while they are in the nearest cache.
constexpr std::size_t kTogether = 32;

}  // namespace

FloatReduction::FloatReduction(int ranks, codec::Dtype dtype, codec::Op op)
    : ranks_(ranks),
      op_(op),
      divided_(op == codec::Op::Avg && (ranks & (ranks - 1)) != 0),
      sum_{dtype, op == codec::Op::Avg ? sums::average_scale(ranks) : 0} {}

std::size_t FloatReduction::block() const {
    return kBlockBytes / codec::size_of(sum_.dtype);
}

void FloatReduction::reduce(std::size_t blocks, const void* const* elements,
                            const std::uint8_t* const* present, void* out, std::uint8_t* some,
                            void* also) const {
    if (sums()) {
        sums::exact_sums_of_present(sum_, blocks, ranks_, elements, present, out, some,
                                    divided_ ? nullptr : also);
        if (!divided_) return;
    } else {
        std::fill_n(some, blocks, std::uint8_t{1});
        sums::extremes(sum_.dtype, op_ == codec::Op::Max, blocks, ranks_, elements, out);
    }
    for_runs(some, blocks, [&](std::size_t first, std::size_t last, bool is_present) {
        if (!is_present) return;
        const std::size_t begin = first * kBlockBytes;
        std::byte* const result = static_cast<std::byte*>(out) + begin;
        if (divided_) sums::divide(sum_.dtype, ranks_, (last - first) * block(), result);
        if (also)
            std::memcpy(static_cast<std::byte*>(also) + begin, result,
                        (last - first) * kBlockBytes);
    });
}

void FloatReduction::reduce_all(std::size_t blocks, const void* const* elements, void* out) const {
    if (!sums())
        return sums::extremes(sum_.dtype, op_ == codec::Op::Max, blocks, ranks_, elements, out);
    sums::exact_sums(sum_, blocks * block(), ranks_, elements, out);
    if (divided_) sums::divide(sum_.dtype, ranks_, blocks * block(), out);
}

// As many as kTogether allows for all ranks.
void FloatReduction::reduce_run_in_place(std::size_t blocks, void* const* elements) const {
    if (sums() && !divided_) {
        sums::exact_sums_in_place(sum_, blocks * block(), ranks_, elements);
        return;
    }
    alignas(64) std::array<std::byte, kTogether * kBlockBytes> result;
    reduce_all(blocks, elements, result.data());
    for (int r = 0; r < ranks_; ++r) std::memcpy(elements[r], result.data(), blocks * kBlockBytes);
}

void FloatReduction::reduce_blocks_in_place(std::size_t blocks, void* const* elements) const {
    std::array<std::uint8_t, kTogether> some;
    std::array<void*, codec::kMaxRanks> here;
    const auto point = [&](std::size_t block) {
        for (int r = 0; r < ranks_; ++r)
            here[static_cast<std::size_t>(r)] =
                static_cast<std::byte*>(elements[r]) + block * kBlockBytes;
    };
    const std::size_t most = std::max<std::size_t>(1, kTogether / static_cast<std::size_t>(ranks_));
    for (std::size_t done = 0; done < blocks; done += most) {
        const std::size_t together = std::min(most, blocks - done);
        point(done);
        if (sums())
            find_present_anywhere(ranks_, here.data(), together, some.data());
        else
            std::fill_n(some.begin(), together, std::uint8_t{1});
        for_runs(some.data(), together, [&](std::size_t first, std::size_t last, bool is_present) {
            if (!is_present) return;
            point(done + first);
            reduce_run_in_place(last - first, here.data());
        });
    }
}

void FloatReduction::reduce_in_place(std::size_t count, void* const* elements) const {
    const std::size_t whole = count / block(), rest = count % block();
    reduce_blocks_in_place(whole, elements);
    if (!rest) return;
    const std::size_t at = whole * kBlockBytes, bytes = rest * codec::size_of(sum_.dtype);
    alignas(64) std::array<std::array<std::byte, kBlockBytes>, codec::kMaxRanks> tails;
    std::array<const void*, codec::kMaxRanks> padded;
    for (int r = 0; r < ranks_; ++r) {
        auto& tail = tails[static_cast<std::size_t>(r)];
        std::memcpy(tail.data(), static_cast<std::byte*>(elements[r]) + at, bytes);
        std::memset(tail.data() + bytes, 0, kBlockBytes - bytes);
        padded[static_cast<std::size_t>(r)] = tail.data();
    }
    reduce_all(1, padded.data(), tails[0].data());
    for (int r = 0; r < ranks_; ++r)
        std::memcpy(static_cast<std::byte*>(elements[r]) + at, tails[0].data(), bytes);
}

}  // namespace afflux::shared
