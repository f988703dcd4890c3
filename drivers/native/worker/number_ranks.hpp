// The elements of other ranks of a worker's host in version 2 of the protocol: sent together with
// its own rank's, as partial sums (section 6).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/host_ranks.hpp"

namespace afflux::worker {

// Makes of the own elements and the others' what an aggregator of all these ranks would send up.
// The Tensor must live as long, and have others.
class NumberRanks {
  public:
    explicit NumberRanks(const Tensor& tensor);

    // Raises the exponents of adjacent blocks, as sums::scan_blocks writes them, to the greatest of
    // any rank.
    void scan(std::size_t first, std::size_t blocks, std::uint8_t* exponents) const;

    // Writes the contribution for a block, of which `own` are the own elements, padded with zeros.
    // Blocks need no alignment.
    void encode(std::size_t block, const void* own, int exponent, void* out) const;

  private:
    const std::uint8_t* at(std::size_t other, std::size_t block) const;
    bool absent(std::size_t other, std::size_t block) const;
    void sum(std::size_t block, const void* own, int exponent, void* out) const;

    const Tensor& tensor_;
    // The blocks of a rank that are whole.
    std::size_t whole_;
    // Of each rank the last block, if the tensor ends within it.
    std::vector<BlockElements> padded_;
};

}  // namespace afflux::worker
