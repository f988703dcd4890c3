// How the elements of all ranks become one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "arithmetic/elementwise.hpp"
#include "collectives/request.hpp"
#include "contract/wire.hpp"

namespace afflux::collectives {

using wire::kBlockBytes;

// Whether sums of a type are exact ones, rounded once.
constexpr bool is_rounded(Dtype dtype) {
    return dtype >= Dtype::Float32 && dtype <= Dtype::Bfloat16;
}

// The type of elements that are reduced as they are. Throws std::invalid_argument for others.
arithmetic::Plain plain_of(Dtype dtype);

// One reduction of one type of element, for a given number of ranks. Sums, averages, maxima and
// minima of float32, float16 and bfloat16 are those of docs/protocol.md, sections 8.3 and 8.4,
// and of other types those of arithmetic/elementwise.hpp. Blocks are 256 bytes.
class Reduction {
  public:
    // Throws std::invalid_argument for a reduction that is not defined.
    Reduction(int ranks, Dtype dtype, Op op);

    std::size_t element_bytes() const { return size_of(dtype_); }
    // Elements of a block.
    std::size_t block() const { return kBlockBytes / element_bytes(); }
    // Whether a block without a bit set is as good as none, so that it need not move.
    bool scanned() const { return scanned_; }

    // Whether two terms of a block may travel packed.
    bool packs_terms() const { return dtype_ == Dtype::Float32 && op_ <= Op::Avg; }

    // Notes which blocks of `count` elements are present, and copies these if `out` is not null;
    // else, if blocks are not scanned, only copies. `out` has whole blocks. Returns how many are
    // present, 0 if they are not scanned.
    std::size_t take(const std::byte* from, std::size_t count, std::byte* out,
                     std::uint8_t* present) const;
    // Reduces whole blocks of all ranks. Those that are absent (present[r][b] is 0) are not read;
    // some[b] becomes 0, and the block of `out` stays as it is, if block b is absent at all ranks.
    // Blocks that are not scanned are all present. `also`, unless it is null, gets the same as
    // `out`. Each may be one of the ranks' elements, or overlap none.
    void reduce(std::size_t blocks, const void* const* elements, const std::uint8_t* const* present,
                std::byte* out, std::uint8_t* some, std::byte* also = nullptr) const;
    // The same of *terms*, of which each rank has one or more, as many as ranks in all: what is
    // absent is none, whatever the reduction. Ranks whose first term, with its bit in `firsts`, is
    // absent count as zeros.
    void reduce_terms(std::size_t blocks, const void* const* elements,
                      const std::uint8_t* const* present, std::uint64_t firsts, std::byte* out,
                      std::uint8_t* some) const;
    // Reduces `count` elements of ranks that have whole blocks, all of them into `out`: with zeros
    // where no rank has anything.
    void reduce_all(std::size_t count, const void* const* elements,
                    const std::uint8_t* const* present, std::byte* out, std::uint8_t* some) const;
    // Reduces `count` elements, and writes the result to each rank's own memory, but for blocks
    // that are absent at all of them.
    void reduce_in_place(std::size_t count, void* const* elements) const;

  private:
    void combine(std::size_t count, int sources, const void* const* elements, bool all_present,
                 int outs, void* const* out) const;
    void reduce_run(std::size_t first, std::size_t last, std::uint64_t having, bool all_present,
                    const void* const* elements, std::byte* out, std::uint8_t* some,
                    std::byte* also) const;
    void reduce_blocks_in_place(std::size_t blocks, void* const* elements) const;

    int ranks_;
    Dtype dtype_;
    Op op_;
    bool scanned_;
};

}  // namespace afflux::collectives
