// Reductions of floats whose results are correctly rounded (docs/protocol_2.md, sections 3 and 4).
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/types.hpp"
#include "sums/exact_sums.hpp"

namespace afflux::shared {

// One reduction of one type, for a given number of ranks. Blocks are 256 bytes.
class FloatReduction {
  public:
    FloatReduction(int ranks, codec::Dtype dtype, codec::Op op);

    std::size_t block() const;
    // Then a block without a bit set is as good as none.
    bool sums() const { return codec::is_sum(op_); }

    // Reduces whole blocks of all ranks. Of sums, absent blocks (present[r][b] is 0) are not read;
    // some[b] becomes 0, and the block of `out` stays as it is, if block b is absent at all.
    // `also`, unless it is null, gets the same as `out`. Each may be one of the ranks' elements, or
    // overlap none.
    void reduce(std::size_t blocks, const void* const* elements, const std::uint8_t* const* present,
                void* out, std::uint8_t* some, void* also) const;
    // Reduces `count` elements, and writes the result to each rank's own memory: of sums, but for
    // blocks without a bit at any rank.
    void reduce_in_place(std::size_t count, void* const* elements) const;

  private:
    void reduce_all(std::size_t blocks, const void* const* elements, void* out) const;
    void reduce_run_in_place(std::size_t blocks, void* const* elements) const;
    void reduce_blocks_in_place(std::size_t blocks, void* const* elements) const;

    int ranks_;
    codec::Op op_;
    bool divided_;  // an average that a scale alone does not make
    sums::Sum sum_;
};

}  // namespace afflux::shared
