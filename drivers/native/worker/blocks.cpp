#include "worker/blocks.hpp"

#include <algorithm>
#include <cstring>

#include "codec/classes.hpp"
#include "codec/quantise.hpp"
#include "codec/scan.hpp"
#include "codec/sortable.hpp"

namespace afflux::worker {

using codec::kBlock;

wire::Opcode Tensor::opcode() const {
    if (op == codec::Op::Max) return wire::Opcode::Max;
    return op == codec::Op::Min ? wire::Opcode::Min : wire::Opcode::Sum;
}

wire::OpcodeDtype Tensor::opcode_dtype() const {
    return static_cast<wire::OpcodeDtype>(static_cast<int>(opcode()) << 4 |
                                          static_cast<int>(dtype));
}

Blocks::Blocks(const Tensor& tensor)
    : tensor_(tensor),
      host_ranks_(tensor),
      in_place_(tensor.elements == tensor.result),
      numbers_(tensor.ranks, tensor.dtype, tensor.op),
      size_(codec::blocks_of(tensor.count)),
      floating_(tensor.has_exponents()),
      // Zero is not the identity of Max and Min.
      all_present_(tensor.every_block || !codec::is_sum(tensor.op)) {
    if (!all_present_) exponents_.resize(size_);
    if (tensor.count % kBlock != 0) padded_ = keep(size_ - 1);
}

BlockElements Blocks::keep(std::size_t block) const {
    BlockElements kept{};
    std::memcpy(kept.data(), source(block), length(block) * codec::size_of(tensor_.dtype));
    return kept;
}

void Blocks::scan(std::size_t first, std::size_t blocks) {
    if (all_present_ || first >= size_) return;
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
    if (tensor_.mirror.elements == nullptr) return;
    const std::size_t size = codec::size_of(tensor_.dtype);
    const std::size_t elements = (blocks - 1) * kBlock + length(first + blocks - 1);
    std::memcpy(static_cast<std::uint8_t*>(tensor_.mirror.elements) + first * kBlock * size,
                target(first), elements * size);
    std::memset(tensor_.mirror.marks + first, 1, blocks);
}

std::size_t Blocks::length(std::size_t block) const {
    return std::min(kBlock, tensor_.count - block * kBlock);
}

const std::uint8_t* Blocks::source(std::size_t block) const {
    return static_cast<const std::uint8_t*>(tensor_.elements) +
           block * kBlock * codec::size_of(tensor_.dtype);
}

std::uint8_t* Blocks::target(std::size_t block) {
    return static_cast<std::uint8_t*>(tensor_.result) +
           block * kBlock * codec::size_of(tensor_.dtype);
}

std::uint8_t Blocks::finite_exponent(std::size_t block) const {
    const std::uint8_t own = codec::finite_exponent(tensor_.dtype, source(block), length(block));
    return host_ranks_.finite_exponent(block, own);
}

void Blocks::encode(std::size_t first, std::size_t blocks, const std::uint8_t* exponents,
                    std::int32_t* out) {
    const bool short_end = length(first + blocks - 1) < kBlock;
    const std::size_t whole = blocks - static_cast<std::size_t>(short_end);
    encode_whole(source(first), whole, exponents, out);
    if (short_end) encode_whole(padded_.data(), 1, exponents + whole, out + whole * kBlock);
    host_ranks_.encode(first, blocks, exponents, out);
}

void Blocks::encode_whole(const void* elements, std::size_t blocks, const std::uint8_t* exponents,
                          std::int32_t* out) const {
    if (blocks == 0) return;
    if (floating_) {
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
