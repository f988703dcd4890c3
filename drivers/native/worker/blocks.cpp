#include "worker/blocks.hpp"

#include <algorithm>
#include <cstring>

#include "sums/block_scan.hpp"
#include "sums/exact_sums.hpp"

namespace afflux::worker {

namespace {

// The scale of a sum of numbers, or of an average.
int scale_of(const Tensor& tensor) {
    return tensor.op == arithmetic::Op::Avg ? sums::average_scale(tensor.ranks) : 0;
}

wire::OpcodeDtype pair_of(int opcode, arithmetic::Dtype dtype) {
    return static_cast<wire::OpcodeDtype>(opcode << 4 | static_cast<int>(dtype));
}

// The first word of a block that is not summed.
constexpr std::uint32_t kNotSummed = 0xFFFF'FFFF;

}  // namespace

wire::OpcodeDtype Tensor::opening_opcode_dtype() const {
    return pair_of(static_cast<int>(wire::Opcode::Sum), dtype);
}

const packet::PartialDtype* Tensor::partial_dtype() const {
    if (others.empty() || !has_exponents()) return nullptr;
    return packet::partial_dtype_of(dtype, partial_bits);
}

wire::OpcodeDtype Tensor::opcode_dtype() const {
    const wire::OpcodeDtype whole = result_opcode_dtype();
    const packet::PartialDtype* partial = partial_dtype();
    return partial == nullptr ? whole
                              : static_cast<wire::OpcodeDtype>((whole & 0xF0) | partial->value);
}

wire::OpcodeDtype Tensor::result_opcode_dtype() const {
    const bool integers = dtype == arithmetic::Dtype::Int32;
    switch (op) {
        case arithmetic::Op::Max:
            return integers ? pair_of(static_cast<int>(wire::Opcode::Max), dtype)
                            : pair_of(static_cast<int>(wire::NumberOpcode::Max), dtype);
        case arithmetic::Op::Min:
            return integers ? pair_of(static_cast<int>(wire::Opcode::Min), dtype)
                            : pair_of(static_cast<int>(wire::NumberOpcode::Min), dtype);
        default:
            return integers ? pair_of(static_cast<int>(wire::Opcode::Sum), dtype)
                            : pair_of(static_cast<int>(wire::NumberOpcode::Sum) + scale_of(*this),
                                      dtype);
    }
}

Blocks::Blocks(const Tensor& tensor)
    : tensor_(tensor),
      block_elements_(tensor.block_elements()),
      size_(tensor.blocks()),
      floating_(tensor.has_exponents()),
      // Zero is not the identity of Max and Min.
      all_present_(!arithmetic::is_sum(tensor.op)) {
    if (!tensor.others.empty()) host_ranks_.emplace(tensor_);
    if (!all_present_) exponents_.resize(size_);
    if (tensor.count % block_elements_ != 0) {
        std::memcpy(padded_.data(), source(size_ - 1),
                    length(size_ - 1) * arithmetic::size_of(tensor_.dtype));
    }
}

void Blocks::scan(std::size_t first, std::size_t blocks) {
    if (all_present_ || first >= size_) return;
    const std::size_t end = std::min(first + blocks, size_);
    const bool short_end = length(end - 1) < block_elements_;
    const std::size_t whole = end - first - static_cast<std::size_t>(short_end);
    sums::scan_blocks(tensor_.dtype, source(first), whole, &exponents_[first]);
    if (short_end) {
        sums::scan_blocks(tensor_.dtype, padded_.data(), 1, &exponents_[first + whole]);
    }
    if (host_ranks_) host_ranks_->scan(first, end - first, &exponents_[first]);
}

std::size_t Blocks::length(std::size_t block) const {
    return std::min(block_elements_, tensor_.count - block * block_elements_);
}

const std::uint8_t* Blocks::source(std::size_t block) const {
    return static_cast<const std::uint8_t*>(tensor_.elements) + block * wire::kBlockBytes;
}

std::uint8_t* Blocks::target(std::size_t block) {
    return static_cast<std::uint8_t*>(tensor_.result) + block * wire::kBlockBytes;
}

void Blocks::encode(std::size_t first, std::size_t blocks, const std::uint8_t* exponents,
                    std::int32_t* out) {
    const bool short_end = length(first + blocks - 1) < block_elements_;
    if (host_ranks_) {
        for (std::size_t i = 0; i < blocks; ++i, out += sent_words()) {
            const bool last = short_end && i == blocks - 1;
            host_ranks_->encode(first + i, last ? padded_.data() : source(first + i), exponents[i],
                                out);
        }
        return;
    }
    const std::size_t whole = blocks - static_cast<std::size_t>(short_end);
    std::memcpy(out, source(first), whole * wire::kBlockBytes);
    if (short_end) {
        std::memcpy(out + whole * wire::kBlockElements, padded_.data(), wire::kBlockBytes);
    }
}

void Blocks::decode(std::size_t first, std::size_t blocks, const std::int32_t* results) {
    const bool sums = tensor_.has_exponents();
    for (std::size_t block = first; block < first + blocks; ++block) {
        const std::int32_t* result = results + (block - first) * wire::kBlockElements;
        if (sums && static_cast<std::uint32_t>(*result) == kNotSummed) {
            not_summed_.push_back(block);
            continue;
        }
        const std::size_t bytes = length(block) * arithmetic::size_of(tensor_.dtype);
        std::memcpy(target(block), result, bytes);
        if (tensor_.op == arithmetic::Op::Avg) {
            sums::divide(tensor_.dtype, tensor_.ranks, length(block), target(block));
        }
        if (tensor_.journal != nullptr) tensor_.journal->take(block);
        // It has just been written, so it comes from a cache.
        put_in(tensor_.mirror, block, bytes, target(block));
    }
}

void Blocks::keep(std::size_t block) const {
    if (tensor_.journal->taken()[block] != 0) tensor_.journal->keep(block);
}

}  // namespace afflux::worker
