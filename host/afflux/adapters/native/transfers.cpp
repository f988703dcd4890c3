// Sends and receives, which go straight to Gloo.
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <unistd.h>

#include <thread>

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

bool all_on_cpu(const Tensors& tensors) {
    return std::all_of(tensors.begin(), tensors.end(),
                       [](const at::Tensor& each) { return each.is_cpu(); });
}

Tensors hosts_like(const Tensors& tensors, bool pinned = false) {
    Tensors hosts;
    for (const at::Tensor& each : tensors) {
        const auto options = each.options().device(at::kCPU).pinned_memory(pinned);
        hosts.push_back(at::empty(each.sizes(), options));
    }
    return hosts;
}

c10::Event event_now(c10::Device device) {
    c10::Event event(device.type());
    event.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    return event;
}

// A receive for tensors of a device: they are there when a wait for it has returned.
class DeviceReceive : public c10d::Work {
  public:
    DeviceReceive(WorkPointer work, Tensors hosts, Tensors tensors)
        : work_(std::move(work)), hosts_(std::move(hosts)), tensors_(std::move(tensors)) {
        for (const at::Tensor& each : tensors_) given_.push_back(event_now(each.device()));
    }

    bool wait(std::chrono::milliseconds timeout) override {
        const bool over = work_->wait(timeout);
        if (over) land();
        return over;
    }
    bool isCompleted() override {
        const bool over = work_->isCompleted();
        if (over && work_->isSuccess()) land();
        return over;
    }
    bool isSuccess() const override { return work_->isSuccess(); }
    std::exception_ptr exception() const override { return work_->exception(); }
    int sourceRank() const override { return work_->sourceRank(); }
    void synchronize() override { wait(kNoTimeout); }
    void blockCurrentStream() override { wait(kNoTimeout); }
    void abort() override { work_->abort(); }
    Tensors result() override { return tensors_; }

  private:
    void land() {
        const std::scoped_lock lock(landing_);
        for (std::size_t n = 0; n < hosts_.size(); ++n) {
            const c10::Device device = tensors_[n].device();
            // Behind what the stream was given before the call, which may be another stream.
            given_[n].block(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
            // Autograd does not see it, as it sees no collective.
            at::Tensor data = tensors_[n].variable_data();
            const c10::InferenceMode inference(data.is_inference());
            data.copy_(hosts_[n], /*non_blocking=*/false);
        }
        hosts_.clear();
    }

    const WorkPointer work_;
    std::mutex landing_;
    std::vector<c10::Event> given_;
    Tensors hosts_;
    Tensors tensors_;
};

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

// Waits for no longer than the group's timeout: a stream may never come to the tensors.
Tensors AffluxBackend::on_host(const Tensors& tensors) const {
    using Clock = std::chrono::steady_clock;
    Tensors hosts = hosts_like(tensors, /*pinned=*/true);
    std::vector<c10::Event> events;
    for (std::size_t n = 0; n < hosts.size(); ++n) {
        // Of a lazily negated or conjugated view CUDA would change the copy before it has come.
        const at::Tensor source = tensors[n].detach().resolve_conj().resolve_neg();
        hosts[n].copy_(source, /*non_blocking=*/true);
        events.push_back(event_now(tensors[n].device()));
    }
    const double limit_s =
        with_python([&] { return core_.get().attr("timeout_s").cast<double>(); });
    const Clock::time_point start = Clock::now();
    Clock::time_point look = start;
    for (const c10::Event& event : events)
        while (!event.query()) {
            const Clock::time_point now = Clock::now();
            if (std::chrono::duration<double>(now - start).count() > limit_s)
                throw std::runtime_error("send: " + tensors[0].device().str() +
                                         " has not come to the tensor within the group's timeout");
            if (now > look) {
                look = now + std::chrono::milliseconds(100);
                with_python([] {
                    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
                });
            }
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
    return hosts;
}

WorkPointer AffluxBackend::told(WorkPointer work) const {
    if (!completions_->wanted()) return work;
    return c10::make_intrusive<TransferWork>(std::move(work), completions_);
}

WorkPointer AffluxBackend::send(Tensors& tensors, int rank, int tag) {
    if (!all_on_cpu(tensors)) {
        Tensors hosts = on_host(tensors);
        return send(hosts, rank, tag);
    }
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
    if (!all_on_cpu(tensors)) {
        Tensors hosts = hosts_like(tensors);
        WorkPointer work = recv(hosts, rank, tag);
        return c10::make_intrusive<DeviceReceive>(std::move(work), std::move(hosts), tensors);
    }
    return recorded("afflux:recv", tensors, [&] {
        if (observed.load()) return told(in_python("recv", tensors, rank, tag));
        return point_to_point("recv", tensors, [&] { return gloo()->recv(tensors, rank, tag); });
    });
}

WorkPointer AffluxBackend::recvAnysource(Tensors& tensors, int tag) {
    if (!all_on_cpu(tensors)) {
        Tensors hosts = hosts_like(tensors);
        WorkPointer work = recvAnysource(hosts, tag);
        return c10::make_intrusive<DeviceReceive>(std::move(work), std::move(hosts), tensors);
    }
    return recorded("afflux:recvAnySource", tensors, [&] {
        if (observed.load()) return told(in_python("recv_anysource", tensors, tag));
        return point_to_point("recv_anysource", tensors,
                              [&] { return gloo()->recvAnysource(tensors, tag); });
    });
}

}  // namespace afflux
