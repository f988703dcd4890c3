// The backend "afflux" as torch's own C++ has backends.
//
// Simple calls need no Python: what the group's reducer offers to C++ (c_api.h), and synchronous
// ones that go to Gloo where the ranks need not agree before. All others, and whatever takes longer
// than a moment or fails, go to the thread of the group in Python (afflux.group.progress), whose
// turn both share.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "call_cache.hpp"
#include "completion.hpp"
#include "python_object.hpp"
#include "turn.h"

namespace afflux {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;

// torch's class has the method that AffluxBackend overrides.
template <typename Base>
concept Shrinks = requires(Base& base, const std::vector<std::int64_t>& excluded,
                           const c10::intrusive_ptr<typename Base::Options>& options) {
    { base.shrink(excluded, 0, options) } -> std::same_as<c10::intrusive_ptr<Base>>;
};

#ifdef AFFLUX_TORCH_HAS_COMPLETION_HOOKS
inline void add_hook(Completions& completions, std::int64_t id, c10d::CompletionHook hook) {
    completions.add(id, [hook = std::move(hook)](auto key, auto duration_ms) {
        hook({.completionKey = key, .duration_ms = duration_ms});
    });
}
#endif

class AffluxBackend : public c10d::Backend {
  public:
    // `core` is the group, `gloo` its Gloo backend; `calls` the capsule of its reducer, None
    // if C++ cannot call that; `sums` that of sums in memory; `only_gloo` says that there is no
    // other engine than Gloo; `splitter(core, store, ranks, options)` makes a group of some ranks,
    // `shrinker(core, excluded, aborts)` one of those that are left;
    // `timed_out` as for PendingWork.
    AffluxBackend(int rank, int size, py::object core, c10::intrusive_ptr<c10d::Backend> gloo,
                  std::shared_ptr<Turn> turn, py::object calls, py::object sums, bool only_gloo,
                  py::object splitter, py::object shrinker,
                  std::shared_ptr<Completions> completions, py::object timed_out);

    const std::string getBackendName() const override { return "afflux"; }
    py::object core() const { return core_.get(); }
    std::map<std::string, std::uint64_t> gloo_counts() const { return gloo_counts_.read(); }
    // Called when the group is closed: Gloo's threads must end before the process.
    void let_go() {
        c10::intrusive_ptr<c10d::Backend> gloo;
        const std::scoped_lock lock(gloo_mutex_);
        gloo.swap(gloo_);
    }
    // While somebody observes, all calls go through Python, which tells the observers.
    std::atomic<bool> observed{false};

    WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
    WorkPointer allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
    WorkPointer allreduce_coalesced(Tensors& tensors,
                                    const c10d::AllreduceCoalescedOptions& options) override;
    WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
    WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
    WorkPointer allgather(TensorLists& outputs, Tensors& inputs,
                          const c10d::AllgatherOptions& options) override;
    WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                                const c10d::AllgatherOptions& options) override;
    WorkPointer allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions& options) override;
    WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                const c10d::AllgatherOptions& options) override;
    WorkPointer gather(TensorLists& outputs, Tensors& inputs,
                       const c10d::GatherOptions& options) override;
    WorkPointer scatter(Tensors& outputs, TensorLists& inputs,
                        const c10d::ScatterOptions& options) override;
    WorkPointer reduce_scatter(Tensors& outputs, TensorLists& inputs,
                               const c10d::ReduceScatterOptions& options) override;
    WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                     const c10d::ReduceScatterOptions& options) override;
    WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                const c10d::ReduceScatterOptions& options) override;
    WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input,
                              std::vector<std::int64_t>& output_sizes,
                              std::vector<std::int64_t>& input_sizes,
                              const c10d::AllToAllOptions& options) override;
    WorkPointer alltoall(Tensors& outputs, Tensors& inputs,
                         const c10d::AllToAllOptions& options) override;
    WorkPointer send(Tensors& tensors, int rank, int tag) override;
    WorkPointer recv(Tensors& tensors, int rank, int tag) override;
    WorkPointer recvAnysource(Tensors& tensors, int tag) override;
    WorkPointer barrier(const c10d::BarrierOptions& options) override;

#ifdef C10D_BACKEND_HAS_HOOKS
    // From 2.14 on torch calls these, and has the old names for code that overrides only those. It
    // knows such a one by a mark that the thread has during the call, so a call within the call, of
    // a signal handler, would be taken for a method that nobody overrides.
    WorkPointer all_gather_single(at::Tensor& output, at::Tensor& input,
                                  const c10d::AllgatherOptions& options) override {
        return _allgather_base(output, input, options);
    }
    WorkPointer all_gather_single_coalesced(Tensors& outputs, Tensors& inputs,
                                            const c10d::AllgatherOptions& options) override {
        return allgather_into_tensor_coalesced(outputs, inputs, options);
    }
    WorkPointer reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                      const c10d::ReduceScatterOptions& options) override {
        return _reduce_scatter_base(output, input, options);
    }
    WorkPointer reduce_scatter_single_coalesced(
        Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) override {
        return reduce_scatter_tensor_coalesced(outputs, inputs, options);
    }
    WorkPointer all_to_all_single(at::Tensor& output, at::Tensor& input,
                                  std::vector<std::int64_t>& output_sizes,
                                  std::vector<std::int64_t>& input_sizes,
                                  const c10d::AllToAllOptions& options) override {
        return alltoall_base(output, input, output_sizes, input_sizes, options);
    }
#endif
    void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

    void setTimeout(std::chrono::milliseconds timeout) override;
    void setSequenceNumberForGroup() override {}
    std::uint64_t getSequenceNumberForGroup() override { return turn_->sequence.load(); }
    void setGroupUid(const std::string& uid) override;
    bool supportsSplitting() const override { return true; }
    c10::intrusive_ptr<Options> getBackendOptions() override;
    c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                      const std::vector<int>& ranks,
                                      const c10::intrusive_ptr<Options>& options) override;
    // Without "override": torch before 2.13 may lack them, and later ones may call them otherwise.
    bool supportsShrinking() const { return Shrinks<c10d::Backend>; }
    c10::intrusive_ptr<Backend> shrink(const std::vector<std::int64_t>& excluded, int flags,
                                       const c10::intrusive_ptr<Options>& options);
    void shutdown() override;
    void abort() override;
    c10d::ErrorType getError() override;
#ifdef AFFLUX_TORCH_HAS_COMPLETION_HOOKS
    // Without them an operation that hangs has ended for torch's flight recorder.
    bool supportsCompletionHooks() const override { return true; }
    void registerCompletionHook(std::int64_t id, c10d::CompletionHook hook) override {
        add_hook(*completions_, id, std::move(hook));
    }
    void unregisterCompletionHook(std::int64_t id) override { completions_->remove(id); }
#endif
    void enableCollectivesTiming() override { gloo()->enableCollectivesTiming(); }

  private:
    struct Asked;
    c10::intrusive_ptr<c10d::Backend> gloo() const;
    bool may_go_now(const Asked& asked) const;
    std::shared_ptr<const Known> known(const Asked& asked);
    template <typename Gloo, typename General>
    WorkPointer carry_out(Asked asked, const Gloo& pass_on, const General& general);
    WorkPointer run(const Known& call, Asked& asked);
    template <typename Gloo>
    WorkPointer wait_for_gloo(const Known& call, const Asked& asked, const Gloo& pass_on);
    // Begins a sum of which Gloo moves the elements.
    WorkPointer sum(const Known& call, const Asked& asked) const;
    // Hands a begun operation over to the group's thread, together with the turn.
    template <typename More>
    WorkPointer hand_over(const Known& call, const Asked& asked, std::int64_t tried_ns,
                          const WorkPointer& gloo, const More& more);
    [[noreturn]] void refused(const std::exception_ptr& error);
    // Copies of tensors of a device.
    Tensors on_host(const Tensors& tensors) const;
    // The Work of a send or a receive, with which torch's hooks are told of its end.
    WorkPointer told(WorkPointer work) const;
    template <typename Send>
    WorkPointer point_to_point(const char* method, Tensors& tensors, const Send& send);
    template <typename... Arguments>
    WorkPointer in_python(const char* method, const Arguments&... arguments);

    const PythonObject core_, splitter_, shrinker_, capsule_, may_block_, abandon_, timed_out_;
    mutable std::mutex gloo_mutex_;
    c10::intrusive_ptr<c10d::Backend> gloo_;  // none once the group is closed
    const std::shared_ptr<Turn> turn_;
    const afflux_calls* const calls_;
    const afflux_sums* const sums_;
    const bool only_gloo_;
    const pid_t process_;
    const std::shared_ptr<Completions> completions_;
    KnownCalls known_;
    GlooCounts gloo_counts_;
};

}  // namespace afflux
