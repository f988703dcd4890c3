// How the elements of all ranks become one: floats correctly rounded or by the codec, or as they
// are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "codec/numbers.hpp"
#include "shared/floats.hpp"
#include "shared/request.hpp"

namespace afflux::shared {

// One reduction of one type of element, for a given number of ranks.
class Arithmetic {
  public:
    // `numbers` is whether floats are reduced as version 2 of the protocol defines it.
    // Throws std::invalid_argument for a reduction that is not defined.
    Arithmetic(int ranks, Dtype dtype, Op op, bool numbers);

    std::size_t element_bytes() const { return size_of(dtype_); }
    // Elements of a block.
    std::size_t block() const { return floats_ ? floats_->block() : codec::kBlock; }
    // The codec's constants, if it is the codec that reduces.
    const codec::Numbers* numbers() const { return numbers_ ? &*numbers_ : nullptr; }
    // Whether blocks are scanned, so that those of zeros need not move.
    bool scanned() const {
        return floats_ ? floats_->sums() : numbers_ && codec::is_sum(numbers_->op);
    }
    // Whether absent blocks may have -0, and must be cleared: those of the codec.
    bool cleared() const { return numbers_ && scanned(); }
    // Whether there is `reduce_in_place`.
    bool in_place() const { return floats_ || numbers_; }
    // Whether so many elements are reduced in exact mode.
    bool is_exact(std::size_t count) const;

    // Scans `count` elements, and copies present blocks if `out` is not null; else, if they are not
    // scanned, only copies. `out` has whole blocks. Counts the present ones.
    std::size_t take(const std::byte* from, std::size_t count, std::byte* out,
                     std::uint8_t* exponents) const;
    // Reduces whole blocks, as FloatReduction and codec::reduce do; blocks that are not scanned are
    // always present. `also`, unless it is null, gets the same as `out`.
    void reduce(std::size_t blocks, const void* const* elements,
                const std::uint8_t* const* exponents, std::byte* out, std::uint8_t* present,
                std::byte* also = nullptr) const;
    // Reduces `count` elements of sources that have whole blocks, all of them into `out`: with
    // zeros where no source has anything. In exact mode exponents do not matter.
    void reduce_all(std::size_t count, bool exact, const void* const* elements,
                    const std::uint8_t* const* exponents, std::byte* out,
                    std::uint8_t* present) const;
    // Reduces `count` elements, and writes the result to each source's own memory.
    void reduce_in_place(std::size_t count, void* const* elements) const;

  private:
    int ranks_;
    Dtype dtype_;
    Op op_;
    std::optional<FloatReduction> floats_;
    std::optional<codec::Numbers> numbers_;
};

}  // namespace afflux::shared
