#include "worker/blocks.hpp"

#include <algorithm>
#include <cstring>

#include "codec/classes.hpp"
#include "codec/quantise.hpp"
#include "codec/scan.hpp"
#include "codec/sortable.hpp"
#include "sums/block_scan.hpp"
#include "sums/exact_sums.hpp"

namespace afflux::worker {

using codec::kBlock;

namespace {

// The scale of a sum of numbers, or of an average.
int scale_of(const Tensor& tensor) {
    return tensor.op == codec::Op::Avg ? sums::average_scale(tensor.ranks) : 0;
}

wire::OpcodeDtype pair_of(int opcode, codec::Dtype dtype) {
    return static_cast<wire::OpcodeDtype>(opcode << 4 | static_cast<int>(dtype));
}

// The first word of a block that is not summed.
constexpr std::uint32_t kNotSummed = 0xFFFF'FFFF;

}  // namespace

wire::Opcode Tensor::opcode() const {
    if (op == codec::Op::Max) return wire::Opcode::Max;
    return op == codec::Op::Min ? wire::Opcode::Min : wire::Opcode::Sum;
}

wire::OpcodeDtype Tensor::opening_opcode_dtype() const {
    return pair_of(static_cast<int>(numbers ? wire::Opcode::Sum : opcode()), dtype);
}

const packet::PartialDtype* Tensor::partial_dtype() const {
    if (!numbers || others.empty() || !has_exponents()) return nullptr;
    return packet::partial_dtype_of(dtype, partial_bits);
}

wire::OpcodeDtype Tensor::opcode_dtype() const {
    const wire::OpcodeDtype whole = result_opcode_dtype();
    const packet::PartialDtype* partial = partial_dtype();
    return partial == nullptr ? whole
                              : static_cast<wire::OpcodeDtype>((whole & 0xF0) | partial->value);
}

wire::OpcodeDtype Tensor::result_opcode_dtype() const {
    if (!numbers || dtype == codec::Dtype::Int32) return pair_of(static_cast<int>(opcode()), dtype);
    switch (op) {
        case codec::Op::Max:
            return pair_of(static_cast<int>(wire::NumberOpcode::Max), dtype);
        case codec::Op::Min:
            return pair_of(static_cast<int>(wire::NumberOpcode::Min), dtype);
        default:
            return pair_of(static_cast<int>(wire::NumberOpcode::Sum) + scale_of(*this), dtype);
    }
}

Blocks::Blocks(const Tensor& tensor)
    : tensor_(tensor),
      block_elements_(tensor.block_elements()),
      host_ranks_(tensor),
      in_place_(tensor.elements == tensor.result),
      numbers_(tensor.ranks, tensor.dtype, tensor.op),
      size_(tensor.blocks()),
      floating_(tensor.has_exponents()),
      // Zero is not the identity of Max and Min.
      all_present_(tensor.every_block || !codec::is_sum(tensor.op)) {
    if (tensor.numbers && !tensor.others.empty()) number_ranks_.emplace(tensor_);
    if (!all_present_) exponents_.resize(size_);
    if (tensor.count % block_elements_ != 0) padded_ = keep(size_ - 1);
}

BlockElements Blocks::keep(std::size_t block) const {
    BlockElements kept{};
    std::memcpy(kept.data(), source(block), length(block) * codec::size_of(tensor_.dtype));
    return kept;
}

void Blocks::scan(std::size_t first, std::size_t blocks) {
    if (all_present_ || first >= size_) return;
    if (tensor_.numbers) {
        const std::size_t end = std::min(first + blocks, size_);
        const bool short_end = length(end - 1) < block_elements_;
        const std::size_t whole = end - first - static_cast<std::size_t>(short_end);
        sums::scan_blocks(tensor_.dtype, source(first), whole, &exponents_[first]);
        if (short_end) {
            sums::scan_blocks(tensor_.dtype, padded_.data(), 1, &exponents_[first + whole]);
        }
        if (number_ranks_) number_ranks_->scan(first, end - first, &exponents_[first]);
        return;
    }
    const std::size_t count = std::min(blocks * kBlock, tensor_.count - first * kBlock);
    if (in_place_ && floating_) {
        codec::scan_clear(tensor_.dtype, target(first), count, nullptr, &exponents_[first]);
    } else {
        codec::scan(tensor_.dtype, source(first), count, &exponents_[first]);
    }
    host_ranks_.scan(first, codec::blocks_of(count), &exponents_[first]);
}

void Blocks::clear(std::size_t block) {
    std::memset(target(block), 0, length(block) * codec::size_of(tensor_.dtype));
    mirror(block, 1);
}

// The blocks have just been written, so they come from a cache.
void Blocks::mirror(std::size_t first, std::size_t blocks) {
    const std::size_t elements = (blocks - 1) * block_elements_ + length(first + blocks - 1);
    put_in(tensor_.mirror, codec::size_of(tensor_.dtype), first * block_elements_, elements,
           target(first));
}

std::size_t Blocks::length(std::size_t block) const {
    return std::min(block_elements_, tensor_.count - block * block_elements_);
}

const std::uint8_t* Blocks::source(std::size_t block) const {
    return static_cast<const std::uint8_t*>(tensor_.elements) +
           block * block_elements_ * codec::size_of(tensor_.dtype);
}

std::uint8_t* Blocks::target(std::size_t block) {
    return static_cast<std::uint8_t*>(tensor_.result) +
           block * block_elements_ * codec::size_of(tensor_.dtype);
}

std::uint8_t Blocks::finite_exponent(std::size_t block) const {
    const std::uint8_t own = codec::finite_exponent(tensor_.dtype, source(block), length(block));
    return host_ranks_.finite_exponent(block, own);
}

void Blocks::encode(std::size_t first, std::size_t blocks, const std::uint8_t* exponents,
                    std::int32_t* out) {
    const bool short_end = length(first + blocks - 1) < block_elements_;
    if (number_ranks_) {
        for (std::size_t i = 0; i < blocks; ++i, out += sent_words()) {
            const bool last = short_end && i == blocks - 1;
            number_ranks_->encode(first + i, last ? padded_.data() : source(first + i),
                                  exponents[i], out);
        }
        return;
    }
    const std::size_t whole = blocks - static_cast<std::size_t>(short_end);
    encode_whole(source(first), whole, exponents, out);
    if (short_end) encode_whole(padded_.data(), 1, exponents + whole, out + whole * kBlock);
    host_ranks_.encode(first, blocks, exponents, out);
}

void Blocks::encode_whole(const void* elements, std::size_t blocks, const std::uint8_t* exponents,
                          std::int32_t* out) const {
    if (blocks == 0) return;
    if (tensor_.numbers) {
        std::memcpy(out, elements, blocks * wire::kBlockBytes);
    } else if (floating_) {
        codec::quantise(numbers_, blocks, elements, exponents, out);
    } else if (tensor_.dtype == codec::Dtype::Int32) {
        std::memcpy(out, elements, blocks * wire::kBlockBytes);
    } else {
        codec::to_sortable(tensor_.dtype, tensor_.op, elements, blocks * kBlock, out);
    }
}

void Blocks::encode_kept(std::size_t block, const BlockElements& elements, std::uint8_t exponent,
                         std::int32_t* out) const {
    encode_whole(elements.data(), 1, &exponent, out);
    host_ranks_.encode(block, 1, &exponent, out);
}

void Blocks::count_classes(std::size_t block, std::int32_t* out) const {
    std::fill_n(out, kBlock, 0);
    codec::class_counts(tensor_.dtype, source(block), length(block), out);
    host_ranks_.count_classes(block, out);
}

void Blocks::decode(std::size_t first, std::size_t blocks, const std::int32_t* sums,
                    const std::uint8_t* exponents) {
    if (tensor_.numbers) {
        take_numbers(first, blocks, reinterpret_cast<const std::uint8_t*>(sums));
        return;
    }
    const std::size_t left = length(first + blocks - 1);
    const bool short_end = left < kBlock;
    const std::size_t whole = blocks - static_cast<std::size_t>(short_end);
    decode_whole(whole, sums, exponents, target(first));
    if (short_end) {
        BlockElements values;
        decode_whole(1, sums + whole * kBlock, exponents + whole, values.data());
        std::memcpy(target(first + whole), values.data(), left * codec::size_of(tensor_.dtype));
    }
    mirror(first, blocks);
}

void Blocks::take_numbers(std::size_t first, std::size_t blocks, const std::uint8_t* results) {
    const bool sums = tensor_.has_exponents();
    for (std::size_t block = first; block < first + blocks; ++block) {
        const std::uint8_t* result = results + (block - first) * wire::kBlockBytes;
        std::uint32_t word;
        std::memcpy(&word, result, sizeof word);
        if (sums && word == kNotSummed) {
            not_summed_.push_back(block);
            continue;
        }
        std::memcpy(target(block), result, length(block) * codec::size_of(tensor_.dtype));
        if (tensor_.op == codec::Op::Avg) {
            sums::divide(tensor_.dtype, tensor_.ranks, length(block), target(block));
        }
        mirror(block, 1);
    }
}

void Blocks::decode_whole(std::size_t blocks, const std::int32_t* sums,
                          const std::uint8_t* exponents, void* out) const {
    if (blocks == 0) return;
    if (floating_) {
        codec::dequantise(numbers_, blocks, sums, exponents, out);
    } else if (tensor_.dtype == codec::Dtype::Int32) {
        std::memcpy(out, sums, blocks * wire::kBlockBytes);
    } else {
        codec::from_sortable(tensor_.dtype, sums, blocks * kBlock, out);
    }
}

void Blocks::overlay(std::size_t block, const std::int32_t* counts) {
    codec::overlay_classes(tensor_.dtype, counts, length(block), target(block));
    mirror(block, 1);
}

}  // namespace afflux::worker
