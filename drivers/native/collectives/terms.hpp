// Terms: what stands for the elements of several ranks in a reduction of more ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "collectives/request.hpp"
#include "contract/wire.hpp"

namespace afflux::collectives {

// Makes of blocks of several ranks fewer blocks that give the same result, to the bit, when they
// are reduced with those of others. The exact sum of floats is that of one to three floats, as a
// rule; where it takes more, and for what depends on the order of ranks, or counts them, all blocks
// stay as they are.
//
// With a scale, sums of floats are one term: multiplied by 2**-scale and rounded. Then the result
// is that of two steps.
class Terms {
  public:
    Terms(int sources, Dtype dtype, Op op, std::optional<int> scale = std::nullopt);

    // Whether what they stand for is not the same as they.
    bool rounded() const { return way_ == Way::Rounded; }

    // Takes `blocks` whole blocks of each source. The k-th terms go to out + k * apart, one below
    // the other for each source, and present[k * blocks + b] says whether block b has a k-th term.
    // `zeros_are_none`: blocks without a bit set need not be among the terms.
    void make(std::size_t blocks, const std::byte* const* sources, bool zeros_are_none,
              std::byte* out, std::size_t apart, std::uint8_t* present) const;

  private:
    enum class Way { Extremes, Plain, Sum, Rounded, AsTheyAre };

    int terms_of(std::size_t at, const std::byte* const* sources, std::uint64_t having,
                 std::byte* const* to) const;
    static Way way_of(int sources, Dtype dtype, Op op, bool rounded);
    int copy_all(std::size_t at, const std::byte* const* sources, std::byte* const* to) const;

    const int sources_;
    const Dtype dtype_;
    const Op op_;
    const Way way_;
    const int scale_;
};

}  // namespace afflux::collectives
