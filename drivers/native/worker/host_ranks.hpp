// The elements of other ranks of a worker's host, which it sends together with its own rank's: of
// floats as partial sums (protocol, section 8.6).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "arithmetic/types.hpp"
#include "contract/wire.hpp"

namespace afflux::worker {

struct Tensor;

// The elements of another rank.
struct Other {
    const void* elements;
    // Those of its blocks, as sums::scan_blocks finds them; then absent blocks are not looked at.
    // Null: nobody has scanned them yet.
    const std::uint8_t* exponents = nullptr;
};

// The elements of a block, the last of a tensor padded with zeros.
using BlockElements = std::array<std::uint8_t, wire::kBlockBytes>;

// Adds integers to integers as the aggregator does for `op`.
void merge(arithmetic::Op op, std::span<const std::int32_t> more, std::int32_t* into);

// Makes of the own elements and the others' what an aggregator of all these ranks would send up.
// The Tensor must live as long, and have others.
class HostRanks {
  public:
    explicit HostRanks(const Tensor& tensor);

    // Raises the exponents of adjacent blocks, as sums::scan_blocks writes them, to the greatest of
    // any rank.
    void scan(std::size_t first, std::size_t blocks, std::uint8_t* exponents) const;

    // Writes the contribution for a block, of which `own` are the own elements, padded with zeros.
    // Blocks need no alignment.
    void encode(std::size_t block, const void* own, int exponent, void* out) const;

    // Makes the own elements, which the tensor names too, those of the host, as one worker would
    // contribute them: sums of numbers, of none or more others, are multiplied by 2**-scale and
    // rounded to the dtype.
    void reduce(int scale, void* own) const;

  private:
    const std::uint8_t* at(std::size_t other, std::size_t block) const;
    bool absent(std::size_t other, std::size_t block) const;
    void sum(std::size_t block, const void* own, int exponent, void* out) const;
    void round(int scale, std::uint8_t* own) const;
    // Bitmap of the others.
    std::uint64_t present(std::size_t block) const;

    const Tensor& tensor_;
    // The blocks of a rank that are whole.
    std::size_t whole_;
    // Of each rank the last block, if the tensor ends within it.
    std::vector<BlockElements> padded_;
};

}  // namespace afflux::worker
