// The collectives by their names in c10d's Backend.
#include "dispatch.hpp"

namespace afflux {

WorkPointer AffluxBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
    Asked asked{{Method::AllReduce, number_of(options.reduceOp)}, options.asyncOp, options.timeout};
    asked.title = "afflux:all_reduce";
    asked.read = tensors;
    asked.arguments = [&] { return py::make_tuple(tensors, options); };
    asked.simple = tensors.size() == 1 && lies_plainly(tensors[0]) &&
                   asked.kind.describe(tensors[0]) &&
                   options.reduceOp != c10d::ReduceOp::PREMUL_SUM;
    if (asked.simple) {
        asked.outputs = {tensors[0].mutable_data_ptr()};
        asked.result = tensors;
    }
    return carry_out(
        std::move(asked), [&] { return gloo()->allreduce(tensors, options); },
        [&] { return in_python("allreduce", tensors, options); });
}

WorkPointer AffluxBackend::allreduce_sparse(Tensors& tensors,
                                            const c10d::AllreduceOptions& options) {
    const RecordingPointer recording = record("afflux:all_reduce_sparse", tensors);
    return ended_with(in_python("allreduce", tensors, options), recording);
}

WorkPointer AffluxBackend::allreduce_coalesced(Tensors& tensors,
                                               const c10d::AllreduceCoalescedOptions& options) {
    const RecordingPointer recording = record("afflux:all_reduce_coalesced", tensors);
    return ended_with(in_python("allreduce_coalesced", tensors, options), recording);
}

WorkPointer AffluxBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
    Asked asked{{Method::Broadcast, -1, static_cast<int>(options.rootRank)},
                options.asyncOp,
                options.timeout};
    asked.title = "afflux:broadcast";
    asked.read = tensors;
    asked.arguments = [&] { return py::make_tuple(tensors, options); };
    asked.simple = tensors.size() == 1 && options.rootTensor == 0 && lies_plainly(tensors[0]) &&
                   asked.kind.describe(tensors[0]) && options.rootRank >= 0 &&
                   options.rootRank < getSize();
    if (asked.simple) {
        asked.outputs = {tensors[0].mutable_data_ptr()};
        asked.result = tensors;
    }
    return carry_out(
        std::move(asked), [&] { return gloo()->broadcast(tensors, options); },
        [&] { return in_python("broadcast", tensors, options); });
}

WorkPointer AffluxBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
    Asked asked{{Method::Reduce, number_of(options.reduceOp), static_cast<int>(options.rootRank)},
                options.asyncOp,
                options.timeout};
    asked.title = "afflux:reduce";
    asked.read = tensors;
    asked.arguments = [&] { return py::make_tuple(tensors, options); };
    asked.simple = tensors.size() == 1 && lies_plainly(tensors[0]) &&
                   asked.kind.describe(tensors[0]) &&
                   options.reduceOp != c10d::ReduceOp::PREMUL_SUM;
    return carry_out(
        std::move(asked),
        [&] {
            // Gloo sums in the tensors of all ranks; only the destination's is to change.
            Tensors own{getRank() == options.rootRank ? tensors[0] : tensors[0].clone()};
            return gloo()->reduce(own, options);
        },
        [&] { return in_python("reduce", tensors, options); });
}

WorkPointer AffluxBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                     const c10d::AllgatherOptions& options) {
    Asked asked{{Method::AllGather}, options.asyncOp, options.timeout};
    asked.title = "afflux:all_gather";
    asked.read = inputs;
    asked.arguments = [&] { return py::make_tuple(outputs, inputs, options); };
    asked.simple = inputs.size() == 1 && outputs.size() == 1 && lies_plainly(inputs[0]) &&
                   outputs[0].size() == static_cast<std::size_t>(getSize()) &&
                   all_lie_plainly(outputs[0]) && alike(outputs[0], inputs[0]) &&
                   asked.kind.describe(inputs[0]);
    if (asked.simple) {
        asked.inputs = {inputs[0].const_data_ptr()};
        for (const at::Tensor& output : outputs[0])
            asked.outputs.push_back(output.mutable_data_ptr());
        asked.result = outputs[0];
    }
    return carry_out(
        std::move(asked), [&] { return gloo()->allgather(outputs, inputs, options); },
        [&] { return in_python("allgather", outputs, inputs, options); });
}

WorkPointer AffluxBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                           const c10d::AllgatherOptions& options) {
    Asked asked{{Method::AllGatherBase}, options.asyncOp, options.timeout};
    asked.title = "afflux:all_gather_into_tensor";
    asked.read = input;
    asked.arguments = [&] { return py::make_tuple(output, input, options); };
    asked.simple = lies_plainly(input) && lies_plainly(output) &&
                   output.scalar_type() == input.scalar_type() &&
                   output.numel() == input.numel() * getSize() && asked.kind.describe(input);
    if (asked.simple) {
        asked.inputs = {input.const_data_ptr()};
        asked.outputs = {output.mutable_data_ptr()};
        asked.result = {output};
    }
    return carry_out(
        std::move(asked), [&] { return gloo()->_allgather_base(output, input, options); },
        [&] { return in_python("_allgather_base", output, input, options); });
}

WorkPointer AffluxBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                               const c10d::AllgatherOptions& options) {
    const RecordingPointer recording = record("afflux:all_gather_coalesced", inputs);
    return ended_with(in_python("allgather_coalesced", outputs, inputs, options), recording);
}

WorkPointer AffluxBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                           const c10d::AllgatherOptions& options) {
    const RecordingPointer recording = record("afflux:all_gather_into_tensor_coalesced", inputs);
    return ended_with(in_python("allgather_into_tensor_coalesced", outputs, inputs, options),
                      recording);
}

WorkPointer AffluxBackend::gather(TensorLists& outputs, Tensors& inputs,
                                  const c10d::GatherOptions& options) {
    Asked asked{
        {Method::Gather, -1, static_cast<int>(options.rootRank)}, options.asyncOp, options.timeout};
    asked.title = "afflux:gather";
    asked.read = inputs;
    asked.arguments = [&] { return py::make_tuple(outputs, inputs, options); };
    asked.simple = inputs.size() == 1 && lies_plainly(inputs[0]) &&
                   std::all_of(outputs.begin(), outputs.end(), all_lie_plainly) &&
                   asked.kind.describe(inputs[0]);
    return carry_out(
        std::move(asked), [&] { return gloo()->gather(outputs, inputs, options); },
        [&] { return in_python("gather", outputs, inputs, options); });
}

WorkPointer AffluxBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                   const c10d::ScatterOptions& options) {
    Asked asked{{Method::Scatter, -1, static_cast<int>(options.rootRank)},
                options.asyncOp,
                options.timeout};
    asked.title = "afflux:scatter";
    if (!inputs.empty()) asked.read = inputs[0];
    asked.arguments = [&] { return py::make_tuple(outputs, inputs, options); };
    asked.simple = outputs.size() == 1 && lies_plainly(outputs[0]) &&
                   std::all_of(inputs.begin(), inputs.end(), all_lie_plainly) &&
                   asked.kind.describe(outputs[0]);
    return carry_out(
        std::move(asked), [&] { return gloo()->scatter(outputs, inputs, options); },
        [&] { return in_python("scatter", outputs, inputs, options); });
}

WorkPointer AffluxBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                          const c10d::ReduceScatterOptions& options) {
    Asked asked{
        {Method::ReduceScatter, number_of(options.reduceOp)}, options.asyncOp, options.timeout};
    asked.title = "afflux:reduce_scatter";
    if (!inputs.empty()) asked.read = inputs[0];
    asked.arguments = [&] { return py::make_tuple(outputs, inputs, options); };
    asked.simple = outputs.size() == 1 && inputs.size() == 1 && lies_plainly(outputs[0]) &&
                   inputs[0].size() == static_cast<std::size_t>(getSize()) &&
                   all_lie_plainly(inputs[0]) && alike(inputs[0], outputs[0]) &&
                   asked.kind.describe(outputs[0]) &&
                   options.reduceOp != c10d::ReduceOp::PREMUL_SUM;
    if (asked.simple) {
        for (const at::Tensor& input : inputs[0]) asked.inputs.push_back(input.const_data_ptr());
        asked.outputs = {outputs[0].mutable_data_ptr()};
        asked.result = outputs;
    }
    return carry_out(
        std::move(asked), [&] { return gloo()->reduce_scatter(outputs, inputs, options); },
        [&] { return in_python("reduce_scatter", outputs, inputs, options); });
}

WorkPointer AffluxBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::ReduceScatterOptions& options) {
    Asked asked{
        {Method::ReduceScatterBase, number_of(options.reduceOp)}, options.asyncOp, options.timeout};
    asked.title = "afflux:reduce_scatter_tensor";
    asked.read = input;
    asked.arguments = [&] { return py::make_tuple(output, input, options); };
    asked.simple = lies_plainly(input) && lies_plainly(output) &&
                   output.scalar_type() == input.scalar_type() &&
                   input.numel() == output.numel() * getSize() && asked.kind.describe(output) &&
                   options.reduceOp != c10d::ReduceOp::PREMUL_SUM;
    if (asked.simple) {
        asked.inputs = {input.const_data_ptr()};
        asked.outputs = {output.mutable_data_ptr()};
        asked.result = {output};
    }
    return carry_out(
        std::move(asked), [&] { return gloo()->_reduce_scatter_base(output, input, options); },
        [&] { return in_python("_reduce_scatter_base", output, input, options); });
}

WorkPointer AffluxBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
    const RecordingPointer recording = record("afflux:reduce_scatter_tensor_coalesced", inputs);
    return ended_with(in_python("reduce_scatter_tensor_coalesced", outputs, inputs, options),
                      recording);
}

WorkPointer AffluxBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                         std::vector<std::int64_t>& output_sizes,
                                         std::vector<std::int64_t>& input_sizes,
                                         const c10d::AllToAllOptions& options) {
    Asked asked{{Method::AllToAllBase}, options.asyncOp, options.timeout};
    asked.title = "afflux:all_to_all_single";
    asked.read = input;
    asked.arguments = [&] {
        return py::make_tuple(output, input, output_sizes, input_sizes, options);
    };
    asked.simple = lies_plainly(input) && lies_plainly(output) && asked.kind.describe(input);
    return carry_out(
        std::move(asked),
        [&] { return gloo()->alltoall_base(output, input, output_sizes, input_sizes, options); },
        [&] {
            return in_python("alltoall_base", output, input, output_sizes, input_sizes, options);
        });
}

WorkPointer AffluxBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                    const c10d::AllToAllOptions& options) {
    const RecordingPointer recording = record("afflux:all_to_all", inputs);
    return ended_with(in_python("alltoall", outputs, inputs, options), recording);
}

WorkPointer AffluxBackend::barrier(const c10d::BarrierOptions& options) {
    Asked asked{{Method::Barrier}, options.asyncOp, options.timeout};
    asked.title = "afflux:barrier";
    asked.arguments = [&] { return py::make_tuple(options); };
    return carry_out(
        std::move(asked), [&] { return gloo()->barrier(options); },
        [&] { return in_python("barrier", options); });
}

void AffluxBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
    with_python([&] { core_.get().attr("monitored_barrier")(options, wait_all_ranks); });
}

}  // namespace afflux
