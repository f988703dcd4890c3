#include "worker/direct.hpp"

#include <algorithm>
#include <cstring>

namespace afflux::worker {

bool is_direct(const Tensor& tensor, std::size_t lanes) {
    return tensor.dtype == arithmetic::Dtype::Int32 && tensor.op == arithmetic::Op::Sum &&
           tensor.blocks() < lanes;
}

Direct::Direct(const Tensor& tensor)
    : tensor_(tensor), words_(tensor.blocks() * wire::kBlockElements) {
    if (tensor.count == 0) return;
    std::memcpy(words_.data(), tensor.elements, tensor.count * sizeof(std::int32_t));
    for (const Other& other : tensor.others) {
        merge(tensor.op, {static_cast<const std::int32_t*>(other.elements), tensor.count},
              words_.data());
    }
}

wire::Present Direct::present() const {
    return static_cast<wire::Present>(((1U << words_.size() / wire::kBlockElements) - 1) << 1);
}

void Direct::put(std::int32_t* blocks) const {
    std::copy(words_.begin(), words_.end(), blocks);
}

void Direct::take(const std::int32_t* blocks) const {
    if (tensor_.count == 0) return;
    std::memcpy(tensor_.result, blocks, tensor_.count * sizeof(std::int32_t));
}

}  // namespace afflux::worker
