// The sum of a block of 256 bytes, whose contributions come one at a time.
#pragma once

#include "contract/wire.hpp"
#include "sums/environment.hpp"
#include "sums/exact_sum.hpp"
#include "sums/partial.hpp"

namespace afflux::sums {

// Keeps the sums as doubles, which hold them exactly or not at all: an addition that is not exact
// makes the block one that is *not summed*. The order of contributions has no influence on the
// result, but on whether there is one. It may live in memory that is zero, without a constructor.
class SumBlock {
  public:
    // With the first contribution. Blocks need no alignment.
    void open(const Environment& environment, Dtype dtype, const void* block);

    // Adds a further one. Returns whether all sums are exact so far.
    bool add(const Environment& environment, const void* block);

    // The same of a block of partial sums.
    bool open(const Environment& environment, const Partial& from, const void* block);
    bool add(const Environment& environment, const Partial& from, const void* block);

    // Writes the sums as a block of partial sums: one that is not summed if an integer has too many
    // bits. Contributions may follow.
    void partial(const Environment& environment, const Partial& to, bool all_present,
                 void* out) const;

    // Writes the results as a block: all bits set if it is not summed. Contributions may follow.
    void round(const Environment& environment, int scale, bool all_present, void* out) const;

    // Writes blocks of elements whose sums are these, exactly: each what its predecessors leave,
    // rounded (an expansion: Shewchuk, Adaptive Precision Floating-Point Arithmetic, 1997, section
    // 2.1). Returns how many, or 0 if it takes more than `most`. No contribution may follow.
    int split(const Environment& environment, int most, bool all_present, void* const* terms);

  private:
    Dtype dtype_;
    bool exact_;
    alignas(64) double sums_[wire::kBlockBytes / 2];
};

}  // namespace afflux::sums
