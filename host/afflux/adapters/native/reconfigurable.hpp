// The backend of a group whose ranks may change: torch's `enable_reconfigure`, from 2.14 on.
//
// Each set of ranks has an AffluxBackend, of which this is the latest one's stand-in: torch keeps
// one backend for the life of a process group, and asks it for rank and size. A call that is under
// way when the ranks change ends with the backend that it began with.
#pragma once

#include "backend.hpp"

#ifdef C10D_BACKEND_HAS_RECONFIGURE

namespace afflux {

class ReconfigurableBackend : public c10d::Backend {
  public:
    // `changer` makes the backends (afflux.adapters.reconfigurable); `completions` are theirs, too.
    ReconfigurableBackend(int rank, int size, py::object changer,
                          std::shared_ptr<Completions> completions)
        : Backend(rank, size), changer_(std::move(changer)), completions_(std::move(completions)) {}

    const std::string getBackendName() const override { return "afflux"; }
    // None before the ranks are known.
    py::object core() const {
        const auto latest = find();
        return latest ? latest->core() : py::none();
    }

    bool supportsReconfigure() const override { return true; }
    c10d::ReconfigureHandle get_reconfigure_handle() const override;
    WorkPointer reconfigure(const c10d::ReconfigureOptions& options) override;

    WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
        return latest()->allreduce(tensors, options);
    }
    WorkPointer allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override {
        return latest()->allreduce_sparse(tensors, options);
    }
    WorkPointer allreduce_coalesced(Tensors& tensors,
                                    const c10d::AllreduceCoalescedOptions& options) override {
        return latest()->allreduce_coalesced(tensors, options);
    }
    WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
        return latest()->broadcast(tensors, options);
    }
    WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
        return latest()->reduce(tensors, options);
    }
    WorkPointer allgather(TensorLists& outputs, Tensors& inputs,
                          const c10d::AllgatherOptions& options) override {
        return latest()->allgather(outputs, inputs, options);
    }
    WorkPointer allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions& options) override {
        return latest()->allgather_coalesced(outputs, inputs, options);
    }
    WorkPointer all_gather_single(at::Tensor& output, at::Tensor& input,
                                  const c10d::AllgatherOptions& options) override {
        return latest()->all_gather_single(output, input, options);
    }
    WorkPointer all_gather_single_coalesced(Tensors& outputs, Tensors& inputs,
                                            const c10d::AllgatherOptions& options) override {
        return latest()->all_gather_single_coalesced(outputs, inputs, options);
    }
    WorkPointer gather(TensorLists& outputs, Tensors& inputs,
                       const c10d::GatherOptions& options) override {
        return latest()->gather(outputs, inputs, options);
    }
    WorkPointer scatter(Tensors& outputs, TensorLists& inputs,
                        const c10d::ScatterOptions& options) override {
        return latest()->scatter(outputs, inputs, options);
    }
    WorkPointer reduce_scatter(Tensors& outputs, TensorLists& inputs,
                               const c10d::ReduceScatterOptions& options) override {
        return latest()->reduce_scatter(outputs, inputs, options);
    }
    WorkPointer reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                      const c10d::ReduceScatterOptions& options) override {
        return latest()->reduce_scatter_single(output, input, options);
    }
    WorkPointer reduce_scatter_single_coalesced(
        Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) override {
        return latest()->reduce_scatter_single_coalesced(outputs, inputs, options);
    }
    WorkPointer all_to_all_single(at::Tensor& output, at::Tensor& input,
                                  std::vector<std::int64_t>& output_sizes,
                                  std::vector<std::int64_t>& input_sizes,
                                  const c10d::AllToAllOptions& options) override {
        return latest()->all_to_all_single(output, input, output_sizes, input_sizes, options);
    }
    WorkPointer alltoall(Tensors& outputs, Tensors& inputs,
                         const c10d::AllToAllOptions& options) override {
        return latest()->alltoall(outputs, inputs, options);
    }
    WorkPointer send(Tensors& tensors, int rank, int tag) override {
        return latest()->send(tensors, rank, tag);
    }
    WorkPointer recv(Tensors& tensors, int rank, int tag) override {
        return latest()->recv(tensors, rank, tag);
    }
    WorkPointer recvAnysource(Tensors& tensors, int tag) override {
        return latest()->recvAnysource(tensors, tag);
    }
    WorkPointer barrier(const c10d::BarrierOptions& options) override {
        return latest()->barrier(options);
    }
    void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override {
        latest()->monitoredBarrier(options, wait_all_ranks);
    }

    // torch's names until 2.13, by which code of others may still call.
    WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                                const c10d::AllgatherOptions& options) override {
        return all_gather_single(output, input, options);
    }
    WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                const c10d::AllgatherOptions& options) override {
        return all_gather_single_coalesced(outputs, inputs, options);
    }
    WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                     const c10d::ReduceScatterOptions& options) override {
        return reduce_scatter_single(output, input, options);
    }
    WorkPointer reduce_scatter_tensor_coalesced(
        Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) override {
        return reduce_scatter_single_coalesced(outputs, inputs, options);
    }
    WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input,
                              std::vector<std::int64_t>& output_sizes,
                              std::vector<std::int64_t>& input_sizes,
                              const c10d::AllToAllOptions& options) override {
        return all_to_all_single(output, input, output_sizes, input_sizes, options);
    }

    void setTimeout(std::chrono::milliseconds timeout) override;
    void setSequenceNumberForGroup() override {}
    std::uint64_t getSequenceNumberForGroup() override {
        const auto found = find();
        return found ? found->getSequenceNumberForGroup() : 0;
    }
    void setGroupUid(const std::string& uid) override;
    bool supportsSplitting() const override { return true; }
    c10::intrusive_ptr<Options> getBackendOptions() override;
    c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                      const std::vector<int>& ranks,
                                      const c10::intrusive_ptr<Options>& options) override {
        return latest()->split(store, ranks, options);
    }
    bool supportsShrinking() const override { return true; }
    c10::intrusive_ptr<Backend> shrink(const std::vector<std::int64_t>& excluded, int flags,
                                       const c10::intrusive_ptr<Options>& options) override {
        return latest()->shrink(excluded, flags, options);
    }
    void shutdown() override {
        if (const auto found = find()) found->shutdown();
    }
    void abort() override;
    c10d::ErrorType getError() override {
        const auto found = find();
        return found ? found->getError() : c10d::ErrorType::SUCCESS;
    }
#ifdef AFFLUX_TORCH_HAS_COMPLETION_HOOKS
    bool supportsCompletionHooks() const override { return true; }
    void registerCompletionHook(std::int64_t id, c10d::CompletionHook hook) override {
        add_hook(*completions_, id, std::move(hook));
    }
    void unregisterCompletionHook(std::int64_t id) override { completions_->remove(id); }
#endif
    void enableCollectivesTiming() override {
        if (const auto found = find()) found->enableCollectivesTiming();
    }

  private:
    using Pointer = c10::intrusive_ptr<AffluxBackend>;

    // None before the ranks are known.
    Pointer find() const {
        const std::scoped_lock lock(mutex_);
        return latest_;
    }
    Pointer latest() const;

    const PythonObject changer_;
    const std::shared_ptr<Completions> completions_;
    mutable std::mutex mutex_;
    Pointer latest_;
};

}  // namespace afflux

#endif
