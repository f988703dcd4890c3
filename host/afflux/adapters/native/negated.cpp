// Lazily negated tensors, such as x.conj().imag.
//
// For an operator that does not know them, torch's dispatcher makes a copy without the mark, and
// hands that on. It writes back what the operator changed, but not in tensors of a list, which
// c10d's operators take: the collective would run, and its result be lost without a word.
#include <torch/library.h>

namespace afflux {
namespace {

void refuse(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack*) {
    TORCH_CHECK_VALUE(false, op.schema().name(),
                      ": a tensor is lazily negated, and torch would lose the result; "
                      "call resolve_neg() first");
}

}  // namespace

TORCH_LIBRARY_IMPL(c10d, Negative, library) {
    for (const char* name : {"allreduce_", "allreduce_coalesced_", "broadcast_", "reduce_"})
        library.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse>());
}

}  // namespace afflux
