// Sends and receives, which go straight to Gloo.
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <unistd.h>

#include "dispatch.hpp"

namespace afflux {
namespace {

template <typename Call>
WorkPointer recorded(const char* title, const Tensors& tensors, const Call& call) {
    RecordingPointer recording = record(title, tensors);
    WorkPointer work = call();
    if (!recording || !work) return work;
    return c10::make_intrusive<RecordedWork>(std::move(work), std::move(recording));
}

}  // namespace

template <typename Send>
WorkPointer AffluxBackend::point_to_point(const char* method, Tensors& tensors, const Send& send) {
    const bool receives = method[0] == 'r';
    // Python says why not.
    if (receives && !all_lie_plainly(tensors))
        with_python([&] { core_.get().attr("check_received")(method, tensors); });
    if (turn_->closed.load() || getpid() != process_)
        with_python([&] { core_.get().attr("check")(); });
    if (tensors.size() == 1)
        // The name that Python has for it: "float32".
        ++gloo_counts_.slot(std::string(method) + ' ' +
                            torch::getTHPDtype(tensors[0].scalar_type())->name);
    return told(send());
}

WorkPointer AffluxBackend::told(WorkPointer work) const {
    if (!completions_->wanted()) return work;
    return c10::make_intrusive<TransferWork>(std::move(work), completions_);
}

WorkPointer AffluxBackend::send(Tensors& tensors, int rank, int tag) {
    return recorded("afflux:send", tensors, [&] {
        if (observed.load()) return told(in_python("send", tensors, rank, tag));
        return point_to_point("send", tensors, [&] {
            // Gloo sends the bits of a view that is conjugated later, and no strides.
            Tensors plain;
            for (const at::Tensor& each : tensors)
                plain.push_back(each.is_cpu() && each.layout() == at::kStrided
                                    ? each.detach().resolve_conj().resolve_neg().contiguous()
                                    : each);
            return gloo()->send(plain, rank, tag);
        });
    });
}

WorkPointer AffluxBackend::recv(Tensors& tensors, int rank, int tag) {
    return recorded("afflux:recv", tensors, [&] {
        if (observed.load()) return told(in_python("recv", tensors, rank, tag));
        return point_to_point("recv", tensors, [&] { return gloo()->recv(tensors, rank, tag); });
    });
}

WorkPointer AffluxBackend::recvAnysource(Tensors& tensors, int tag) {
    return recorded("afflux:recvAnySource", tensors, [&] {
        if (observed.load()) return told(in_python("recv_anysource", tensors, tag));
        return point_to_point("recv_anysource", tensors,
                              [&] { return gloo()->recvAnysource(tensors, tag); });
    });
}

}  // namespace afflux
