// A tensor's blocks on their way into packets, and results on their way out (protocol, section
// 8.1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "arithmetic/types.hpp"
#include "contract/wire.hpp"
#include "packet/partial_dtype.hpp"
#include "worker/host_ranks.hpp"
#include "worker/journal.hpp"
#include "worker/mirror.hpp"

namespace afflux::worker {

// A reduction: its operation, its number of ranks, and its place in memory.
struct Tensor {
    arithmetic::Dtype dtype;
    arithmetic::Op op;
    int ranks;
    std::size_t count;
    const void* elements;  // nobody else may change them meanwhile
    // As many: zeros at first, or the elements themselves, which the result then replaces.
    void* result;
    // Other ranks of the host, with as many elements each, which the worker sends as its own: of
    // floats as partial sums. With exponents only if blocks are scanned, which those of a tensor
    // are not that travels with the opening round.
    std::vector<Other> others{};
    // The same.
    Mirror mirror{};
    // Of each partial sum of float32: 40, 48 or 64.
    int partial_bits = 64;
    // Learns which blocks are results; null if nobody needs to know.
    Journal* journal = nullptr;

    // Elements of a block, and blocks of the tensor.
    std::size_t block_elements() const { return wire::kBlockBytes / arithmetic::size_of(dtype); }
    std::size_t blocks() const {
        return count / block_elements() + (count % block_elements() != 0);
    }

    // Whether blocks share an exponent, so that the ranks have to agree on it first.
    bool has_exponents() const {
        return arithmetic::is_sum(op) && dtype != arithmetic::Dtype::Int32;
    }

    // Those of the opening round, and of the rounds after it.
    wire::OpcodeDtype opening_opcode_dtype() const;
    wire::OpcodeDtype opcode_dtype() const;
    // Those of results, which are rounded.
    wire::OpcodeDtype result_opcode_dtype() const;

    // The dtype of partial sums; null if none are sent.
    const packet::PartialDtype* partial_dtype() const;
    // The bytes of a block that is sent after the opening round.
    std::size_t sent_block_bytes() const {
        const packet::PartialDtype* partial = partial_dtype();
        return partial != nullptr ? partial->block_bytes() : wire::kBlockBytes;
    }
};

class Blocks {
  public:
    explicit Blocks(const Tensor& tensor);
    Blocks(const Blocks&) = delete;

    std::size_t size() const { return size_; }

    // Finds out which of so many adjacent blocks are present, and their exponents. Blocks beyond
    // the tensor are left out.
    void scan(std::size_t first, std::size_t blocks);

    // Whether the block, which has been scanned, has to be sent.
    bool present(std::size_t block) const { return all_present_ || exponents_[block] != 0; }

    // The exponent that the block's look-ahead word names; 0 if not floating.
    std::uint8_t exponent(std::size_t block) const { return floating_ ? exponents_[block] : 0; }

    // The words of each block that `encode` writes.
    std::size_t sent_words() const { return tensor_.sent_block_bytes() / sizeof(std::int32_t); }

    // The contribution for adjacent blocks, with an agreed exponent for each.
    void encode(std::size_t first, std::size_t blocks, const std::uint8_t* exponents,
                std::int32_t* out);

    // Puts the results of adjacent blocks in their places.
    void decode(std::size_t first, std::size_t blocks, const std::int32_t* results);

    // Lets the journal keep a result; nothing of a block that has none.
    void keep(std::size_t block) const;

    // Blocks that the aggregator could not sum: their elements are still the own ones, or zeros if
    // not in place.
    const std::vector<std::size_t>& not_summed() const { return not_summed_; }

  private:
    std::size_t length(std::size_t block) const;
    const std::uint8_t* source(std::size_t block) const;
    std::uint8_t* target(std::size_t block);

    Tensor tensor_;
    std::size_t block_elements_;
    std::optional<HostRanks> host_ranks_;
    std::size_t size_;
    bool floating_;
    bool all_present_;
    std::vector<std::uint8_t> exponents_;
    std::vector<std::size_t> not_summed_;
    // The last block, if the tensor ends within it, padded with zeros.
    BlockElements padded_{};
};

}  // namespace afflux::worker
