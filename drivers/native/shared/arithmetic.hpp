// How the elements of all ranks become one: by the codec, or as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "codec/numbers.hpp"
#include "shared/request.hpp"

namespace afflux::shared {

// One reduction of one type of element, for a given number of ranks.
class Arithmetic {
  public:
    // Throws std::invalid_argument for a reduction that is not defined.
    Arithmetic(int ranks, Dtype dtype, Op op);

    std::size_t element_bytes() const { return size_of(dtype_); }
    // The codec's constants, if it is the codec that reduces.
    const codec::Numbers* numbers() const { return numbers_ ? &*numbers_ : nullptr; }
    // Whether blocks are scanned, so that those of zeros need not move.
    bool scanned() const { return numbers_ && codec::is_sum(numbers_->op); }
    // Whether so many elements are reduced in exact mode.
    bool is_exact(std::size_t count) const;

    // Scans `count` elements, and copies present blocks if `out` is not null; else, if they are not
    // scanned, only copies. `out` has whole blocks. Counts the present ones.
    std::size_t take(const std::byte* from, std::size_t count, std::byte* out,
                     std::uint8_t* exponents) const;
    // Reduces whole blocks, as codec::reduce does; blocks that are not scanned are always present.
    void reduce(std::size_t blocks, const void* const* elements,
                const std::uint8_t* const* exponents, std::byte* out, std::uint8_t* present) const;
    // Reduces `count` elements of sources that have whole blocks, all of them into `out`: with
    // zeros where no source has anything. In exact mode exponents do not matter.
    void reduce_all(std::size_t count, bool exact, const void* const* elements,
                    const std::uint8_t* const* exponents, std::byte* out,
                    std::uint8_t* present) const;

  private:
    int ranks_;
    Dtype dtype_;
    Op op_;
    std::optional<codec::Numbers> numbers_;
};

}  // namespace afflux::shared
