// A tensor's blocks on their way into packets, and results on their way out (protocol, section 8).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "codec/numbers.hpp"
#include "codec/types.hpp"
#include "contract/wire.hpp"
#include "packet/partial_dtype.hpp"
#include "worker/host_ranks.hpp"
#include "worker/mirror.hpp"
#include "worker/number_ranks.hpp"

namespace afflux::worker {

// A reduction: its operation, its number of ranks, and its place in memory.
struct Tensor {
    codec::Dtype dtype;
    codec::Op op;
    int ranks;
    std::size_t count;
    const void* elements;  // nobody else may change them meanwhile
    // As many: zeros at first, or the elements themselves, which the result then replaces.
    void* result;
    // Whether blocks of zeros are sent, too. Those of Max and Min always are.
    bool every_block = false;
    // Other ranks of the host, with as many elements each, which the worker sends as its own. With
    // exponents only if blocks are scanned: of a tensor that is neither exact nor direct.
    std::vector<Other> others{};
    // The same.
    Mirror mirror{};
    // Whether its own bytes travel, as version 2 of the protocol has it; with others, partial sums.
    // Exponents of others are then those of sums::scan_blocks.
    bool numbers = false;
    // Of each partial sum of float32: 40, 48 or 64.
    int partial_bits = 64;

    // Elements of a block, and blocks of the tensor.
    std::size_t block_elements() const {
        return numbers ? wire::kBlockBytes / codec::size_of(dtype) : wire::kBlockElements;
    }
    std::size_t blocks() const {
        return count / block_elements() + (count % block_elements() != 0);
    }

    // Whether blocks share an exponent, so that the ranks have to agree on it first.
    bool has_exponents() const { return codec::is_sum(op) && dtype != codec::Dtype::Int32; }

    // Those of the opening round, and of the rounds after it.
    wire::Opcode opcode() const;
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

    // Whether agreed words carry exponents, and 255 asks for class counts.
    bool floating() const { return floating_ && !tensor_.numbers; }

    // Finds out which of so many adjacent blocks are present, and their exponents. Elements beyond
    // the tensor are left out. In place, those that are not present become the zeros that they are
    // in the result unless another rank has some there.
    void scan(std::size_t first, std::size_t blocks);

    // Whether the block, which has been scanned, has to be sent.
    bool present(std::size_t block) const { return all_present_ || exponents_[block] != 0; }

    // The exponent that the block's look-ahead word names; 0 if not floating.
    std::uint8_t exponent(std::size_t block) const { return floating_ ? exponents_[block] : 0; }

    // The same of the finite elements only; 0 if all these are zero.
    std::uint8_t finite_exponent(std::size_t block) const;

    // The words of each block that `encode` writes.
    std::size_t sent_words() const { return tensor_.sent_block_bytes() / sizeof(std::int32_t); }

    // The integers of adjacent blocks, with an agreed exponent for each.
    void encode(std::size_t first, std::size_t blocks, const std::uint8_t* exponents,
                std::int32_t* out);

    // The same of one block whose own elements have been kept.
    void encode_kept(std::size_t block, const BlockElements& elements, std::uint8_t exponent,
                     std::int32_t* out) const;

    // The own elements of a block as they are now.
    BlockElements keep(std::size_t block) const;

    // Makes a block of the result zeros.
    void clear(std::size_t block);

    // This worker's contribution to the class counts of a block.
    void count_classes(std::size_t block, std::int32_t* out) const;

    // Puts the elements of adjacent blocks' sums into the result.
    void decode(std::size_t first, std::size_t blocks, const std::int32_t* sums,
                const std::uint8_t* exponents);

    // Blocks that the aggregator could not sum: their elements are still the own ones, or zeros if
    // not in place.
    const std::vector<std::size_t>& not_summed() const { return not_summed_; }

    // Puts NaN and infinities over a block of the result, where the summed counts show any.
    void overlay(std::size_t block, const std::int32_t* counts);

  private:
    std::size_t length(std::size_t block) const;
    const std::uint8_t* source(std::size_t block) const;
    std::uint8_t* target(std::size_t block);
    void take_numbers(std::size_t first, std::size_t blocks, const std::uint8_t* results);
    void mirror(std::size_t first, std::size_t blocks);
    void encode_whole(const void* elements, std::size_t blocks, const std::uint8_t* exponents,
                      std::int32_t* out) const;
    void decode_whole(std::size_t blocks, const std::int32_t* sums, const std::uint8_t* exponents,
                      void* out) const;

    Tensor tensor_;
    std::size_t block_elements_;
    HostRanks host_ranks_;
    std::optional<NumberRanks> number_ranks_;
    bool in_place_;
    codec::Numbers numbers_;
    std::size_t size_;
    bool floating_;
    bool all_present_;
    std::vector<std::uint8_t> exponents_;
    std::vector<std::size_t> not_summed_;
    // The last block, if the tensor ends within it, padded with zeros.
    BlockElements padded_{};
};

}  // namespace afflux::worker
