// The bits of all ranks, side by side, which each rank reduces by itself (protocol,
// section 8.5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "worker/blocks.hpp"

namespace afflux::worker {

// Reduces the elements of all ranks, one array for each, as an aggregator would, to the caller's
// result: of an average all is done.
void reduce_numbers(const Tensor& like, std::size_t count, const std::vector<const void*>& ranks,
                    void* result);

// The elements of a rank that the worker stands for.
struct RankElements {
    std::size_t rank;
    const std::uint8_t* elements;
    // Those of its blocks, of which one with 0 is absent and not looked at; null: all are there.
    const std::uint8_t* exponents = nullptr;

    bool absent(std::size_t block) const { return exponents != nullptr && exponents[block] == 0; }
};

// A small tensor, which travels with the opening round.
class SideBySide {
  public:
    // Whether a tensor is reduced so, in a job of so many lanes.
    static bool takes(const Tensor& tensor, std::size_t lanes);

    // With a bitmap of the other ranks that the worker stands for.
    SideBySide(const Tensor& tensor, unsigned rank, std::uint64_t others);

    // The lanes that carry the tensor, from lane 1 on.
    wire::Present present() const;

    // Writes the blocks of these lanes.
    void put(std::int32_t* blocks) const;

    // Takes as many blocks, which have the words of all ranks.
    void take(const std::int32_t* blocks) const;

  private:
    static std::size_t words_of(const Tensor& tensor);

    Tensor tensor_;
    std::size_t words_;  // of a rank
    std::size_t blocks_;
    std::vector<RankElements> own_;
};

// Blocks that an aggregator could not sum, as the tensor of an operation that brings them.
class Again {
  public:
    // The blocks that one operation brings.
    static constexpr std::size_t kBlocksMost = 1024;

    // Takes the first ones of `blocks`, which are in ascending order.
    Again(const Tensor& tensor, unsigned rank, std::uint64_t others,
          const std::vector<std::size_t>& blocks);
    Again(const Again&) = delete;

    std::size_t size() const { return blocks_.size(); }

    // The end of the fingerprint's text, after the operation's number.
    std::string text() const;

    // The words that are summed. They live as long as this object.
    Tensor on_wire();

    // Writes the blocks' results, once the sums are there.
    void finish() const;

  private:
    std::size_t length(std::size_t block) const;

    Tensor tensor_;
    std::vector<std::size_t> blocks_;
    std::vector<std::int32_t> words_;
    std::vector<std::int32_t> sums_;
};

}  // namespace afflux::worker
