#include "worker/direct.hpp"

#include <algorithm>

#include "codec/sortable.hpp"

namespace afflux::worker {

bool is_direct(const Tensor& tensor, std::size_t lanes) {
    return !tensor.has_exponents() && codec::blocks_of(tensor.count) < lanes;
}

Direct::Direct(const Tensor& tensor)
    : tensor_(tensor), words_(codec::blocks_of(tensor.count) * wire::kBlockElements) {
    if (tensor.count == 0) return;
    // An int32 is its own sortable integer, for sums too.
    codec::to_sortable(tensor.dtype, tensor.op, tensor.elements, tensor.count, words_.data());
    HostRanks(tensor).encode_direct(words_.data());
}

wire::Present Direct::present() const {
    return static_cast<wire::Present>(((1U << words_.size() / wire::kBlockElements) - 1) << 1);
}

void Direct::put(std::int32_t* blocks) const {
    std::copy(words_.begin(), words_.end(), blocks);
}

void Direct::take(const std::int32_t* blocks) {
    if (tensor_.count == 0) return;
    codec::from_sortable(tensor_.dtype, blocks, tensor_.count, tensor_.result);
}

}  // namespace afflux::worker
