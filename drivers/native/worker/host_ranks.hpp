// The elements of other ranks of a worker's host, which it sends together with its own rank's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/numbers.hpp"
#include "codec/types.hpp"
#include "contract/wire.hpp"

namespace afflux::worker {

struct Tensor;

// The elements of another rank.
struct Other {
    const void* elements;
    // Those of its blocks, as codec::scan finds them; then absent blocks are not looked at. Null:
    // nobody has scanned them yet.
    const std::uint8_t* exponents = nullptr;
};

// The elements of a block, the last of a tensor padded with zeros.
using BlockElements = std::array<std::uint8_t, wire::kBlockBytes>;

// Adds integers to integers as the aggregator does for `op`.
void merge(codec::Op op, std::span<const std::int32_t> more, std::int32_t* into);

// To what Blocks find out and make of the own rank's elements it adds what it finds and makes of
// the others', so that the worker's contribution is what all their contributions would sum to. Does
// nothing if there are no others.
class HostRanks {
  public:
    // The elements must live as long, and nobody may change them meanwhile.
    explicit HostRanks(const Tensor& tensor);

    // Raises the exponents of adjacent blocks to the largest of any rank.
    void scan(std::size_t first, std::size_t blocks, std::uint8_t* exponents) const;

    // The exponent of a block's finite elements, the largest of any rank; `own` is the own rank's.
    std::uint8_t finite_exponent(std::size_t block, std::uint8_t own) const;

    // Merges the integers of adjacent blocks into `out`.
    void encode(std::size_t first, std::size_t blocks, const std::uint8_t* exponents,
                std::int32_t* out) const;

    // Adds to the class counts of a block.
    void count_classes(std::size_t block, std::int32_t* out) const;

    // Merges the integers of a whole tensor without exponents into `out`.
    void encode_direct(std::int32_t* out) const;

    // Adds the words of exact mode.
    void encode_exact(std::int32_t* words) const;

  private:
    const std::uint8_t* at(const void* elements, std::size_t block) const;
    std::size_t length(std::size_t block) const;
    static bool absent(const Other& other, std::size_t block) {
        return other.exponents != nullptr && other.exponents[block] == 0;
    }
    void encode_present(const Other& other, std::size_t first, std::size_t blocks,
                        const std::uint8_t* exponents, std::int32_t* out) const;
    void encode_whole(const void* elements, std::size_t blocks, const std::uint8_t* exponents,
                      std::int32_t* out) const;

    codec::Dtype dtype_;
    codec::Op op_;
    std::size_t count_;
    codec::Numbers numbers_;
    bool floating_;
    std::vector<Other> others_;
    // Of each rank the last block, if the tensor ends within it.
    std::vector<BlockElements> padded_;
};

}  // namespace afflux::worker
