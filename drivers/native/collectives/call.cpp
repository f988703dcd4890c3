#include "collectives/call.hpp"

#include <limits>
#include <stdexcept>
#include <string>

namespace afflux::collectives {
namespace {

[[noreturn]] void refuse(const char* what, int number) {
    throw std::invalid_argument(std::string(what) + ": " + std::to_string(number));
}

// Of a null pointer to nothing there are no parts.
template <typename Byte>
Byte* at(Byte* first, std::size_t bytes) {
    return first ? first + bytes : nullptr;
}

}  // namespace

const Reduction& Caller::reduction(Dtype dtype, Op op) {
    auto& entry =
        reductions_[static_cast<std::size_t>(dtype) * kOps + static_cast<std::size_t>(op)];
    if (!entry) entry.emplace(ranks_, dtype, op);
    return *entry;
}

void Caller::prepare(const Request& request, Call& call) {
    if (request.what > Collective::Barrier) refuse("no collective", static_cast<int>(request.what));
    if (static_cast<unsigned>(request.dtype) >= kDtypes)
        refuse("no dtype", static_cast<int>(request.dtype));
    if (static_cast<unsigned>(request.op) >= kOps)
        refuse("no reduction", static_cast<int>(request.op));
    if (request.root < 0 || request.root >= ranks_)
        refuse("no rank that could be the root", request.root);
    const Reduction* const used =
        reduces(request.what) ? &reduction(request.dtype, request.op) : nullptr;
    const auto n = static_cast<std::size_t>(ranks_);
    call.what = request.what;
    call.count = request.count;
    call.element_bytes = size_of(request.dtype);
    call.reduction = used;
    call.block = used ? used->block() : 1;
    call.root = request.root;
    call.tensor = nullptr;
    if (request.count > std::numeric_limits<std::ptrdiff_t>::max() / (call.element_bytes * n))
        throw std::invalid_argument("no memory holds " + std::to_string(request.count) +
                                    " elements of each rank");
    const bool gathers = request.what == Collective::AllGather;
    const bool scatters = request.what == Collective::ReduceScatter;
    if (request.what == Collective::Barrier) {
        if (request.count != 0) throw std::invalid_argument("a barrier has no elements");
        return;
    }
    const auto fits = [&](std::size_t size, bool list) { return size == 1 || (list && size == n); };
    if (!fits(request.outputs.size(), gathers) ||
        ((gathers || scatters) && !fits(request.inputs.size(), scatters)))
        throw std::invalid_argument("not as many tensors as the collective takes");
    const auto given = [&](const void* pointer) {
        if (pointer == nullptr && request.count != 0)
            throw std::invalid_argument("null pointer to a tensor of " +
                                        std::to_string(request.count) + " elements");
    };
    for (void* const pointer : request.outputs) given(pointer);
    if (gathers || scatters)
        for (const void* const pointer : request.inputs) given(pointer);
    const std::size_t bytes = call.bytes();
    if (gathers) {
        call.input = static_cast<const std::byte*>(request.inputs[0]);
        for (std::size_t r = 0; r < n; ++r)
            call.outputs[r] = request.outputs.size() == n
                                  ? static_cast<std::byte*>(request.outputs[r])
                                  : at(static_cast<std::byte*>(request.outputs[0]), r * bytes);
        return;
    }
    call.tensor = static_cast<std::byte*>(request.outputs[0]);
    if (!scatters) return;
    for (std::size_t r = 0; r < n; ++r)
        call.inputs[r] = request.inputs.size() == n
                             ? static_cast<const std::byte*>(request.inputs[r])
                             : at(static_cast<const std::byte*>(request.inputs[0]), r * bytes);
}

}  // namespace afflux::collectives
