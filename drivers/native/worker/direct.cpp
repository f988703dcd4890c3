#include "worker/direct.hpp"

#include <algorithm>
#include <cstring>

#include "codec/exact.hpp"
#include "codec/sortable.hpp"

namespace afflux::worker {
namespace {

bool is_exact(const Tensor& tensor) {
    return tensor.dtype != codec::Dtype::Int32 && codec::is_sum(tensor.op);
}

std::size_t words_of(const Tensor& tensor) {
    return tensor.count * (is_exact(tensor) ? codec::kExactWords : 1);
}

}  // namespace

bool is_direct(const Tensor& tensor, std::size_t lanes) {
    return words_of(tensor) <= (lanes - 1) * wire::kBlockElements;
}

Direct::Direct(const Tensor& tensor)
    : tensor_(tensor), words_(codec::blocks_of(words_of(tensor)) * wire::kBlockElements) {
    if (is_exact(tensor)) {
        codec::exact_encode(tensor.dtype, tensor.elements, tensor.count, words_.data());
    } else if (tensor.count != 0) {
        // The key of an int32 is itself, for sums too.
        codec::to_keys(tensor.dtype, tensor.op, tensor.elements, tensor.count, words_.data());
    }
}

wire::Present Direct::present() const {
    return static_cast<wire::Present>(((1U << words_.size() / wire::kBlockElements) - 1) << 1);
}

void Direct::put(std::int32_t* blocks) const {
    std::copy(words_.begin(), words_.end(), blocks);
}

void Direct::take(const std::int32_t* blocks) {
    if (is_exact(tensor_)) {
        const codec::Numbers numbers(tensor_.ranks, tensor_.dtype, tensor_.op);
        codec::exact_decode(numbers, blocks, tensor_.count, tensor_.result);
    } else if (tensor_.count != 0) {
        codec::from_keys(tensor_.dtype, blocks, tensor_.count, tensor_.result);
    }
}

}  // namespace afflux::worker
