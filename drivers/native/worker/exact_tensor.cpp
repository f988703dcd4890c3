#include "worker/exact_tensor.hpp"

#include "codec/exact.hpp"
#include "codec/reduce.hpp"

namespace afflux::worker {

static_assert(codec::is_exact(codec::Dtype::Float32, codec::Op::Sum, wire::kExactElements) &&
              !codec::is_exact(codec::Dtype::Float32, codec::Op::Sum, wire::kExactElements + 1));

bool is_exact(const Tensor& tensor) {
    return codec::is_exact(tensor.dtype, tensor.op, tensor.count);
}

ExactTensor::ExactTensor(const Tensor& tensor)
    : tensor_(tensor),
      words_(tensor.count * wire::kExactWords),
      sums_(tensor.count * wire::kExactWords) {
    codec::exact_encode(tensor.dtype, tensor.elements, tensor.count, words_.data());
    HostRanks(tensor).encode_exact(words_.data());
}

Tensor ExactTensor::on_wire() {
    return {
        .dtype = codec::Dtype::Int32,
        .op = codec::Op::Sum,
        .ranks = tensor_.ranks,
        .count = words_.size(),
        .elements = words_.data(),
        .result = sums_.data(),
        .every_block = true,
    };
}

void ExactTensor::finish() const {
    const codec::Numbers numbers(tensor_.ranks, tensor_.dtype, tensor_.op);
    codec::exact_decode(numbers, sums_.data(), tensor_.count, tensor_.result);
}

}  // namespace afflux::worker
