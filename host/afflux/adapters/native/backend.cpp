#include "backend.hpp"

#include <pybind11/chrono.h>
#if __has_include(<torch/csrc/distributed/c10d/py/PyProcessGroup.hpp>)
#include <torch/csrc/distributed/c10d/py/PyProcessGroup.hpp>
#else
#include <torch/csrc/distributed/c10d/PyProcessGroup.hpp>
#endif
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <unistd.h>

#include <algorithm>

#include "profiling.hpp"
#include "works.hpp"

namespace afflux {
namespace {

// What takes longer goes on in the group's thread, which listens for other ranks' failures, and is
// told how long it has taken.
constexpr std::int64_t kSliceNs = 100'000'000;
constexpr std::int64_t kGlooSliceNs = 250'000'000;

// A small asynchronous call is tried at once, as long as handing it to another thread and back may
// take where ranks share processors.
constexpr std::int64_t kAsyncSliceNs = 400'000;
constexpr std::size_t kMostAtOnce = std::size_t{256} << 10;

// Wakes the thread that takes operations over. A signal handler may raise in any line of Python's,
// and the thread must learn of the operation all the same; then `wake` is told who gives it up.
void wake_surely(const py::object& wake) {
    constexpr int kAttempts = 100;
    std::optional<py::error_already_set> first;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        try {
            wake(first ? py::object(first->type().attr("__name__")) : py::str());
            break;
        } catch (py::error_already_set& raised) {
            if (!first) first.emplace(raised);
        }
    }
    if (first) throw py::error_already_set(*first);
}

double seconds(std::int64_t ns) {
    return static_cast<double>(ns) / 1e9;
}

const afflux_calls* calls_in(const py::object& capsule) {
    if (capsule.is_none()) return nullptr;
    const auto* calls =
        static_cast<const afflux_calls*>(PyCapsule_GetPointer(capsule.ptr(), AFFLUX_CALLS));
    if (calls == nullptr) throw py::error_already_set();
    if (calls->version != AFFLUX_CALLS_VERSION || calls->size != sizeof(*calls))
        throw std::runtime_error("afflux: its parts are of different versions; build them again");
    return calls;
}

Way way_of(const std::string& name) {
    if (name == "native") return Way::Native;
    return name == "gloo" ? Way::Gloo : Way::Python;
}

// Whether the tensor's elements lie one after the other at an address, and are what it shows.
bool lies_plainly(const at::Tensor& tensor) {
    return tensor.device().is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous() &&
           !tensor.is_neg() && !tensor.is_conj() && !tensor._is_zerotensor();
}

bool all_lie_plainly(const Tensors& tensors) {
    return std::all_of(tensors.begin(), tensors.end(), lies_plainly);
}

bool alike(const Tensors& tensors, const at::Tensor& one) {
    return std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& each) {
        return each.scalar_type() == one.scalar_type() && each.numel() == one.numel();
    });
}

int number_of(const c10d::ReduceOp& reduction) {
    return static_cast<int>(static_cast<c10d::ReduceOp::RedOpType>(reduction));
}

// A Work of Python's classes lives as long as its Python object.
WorkPointer work_of(const py::object& work) {
    if (py::isinstance<FinishedWork>(work) || py::isinstance<PendingWork>(work) ||
        !PyObject_HasAttrString(work.ptr(), "__dict__"))
        return work.cast<WorkPointer>();
    return c10::make_intrusive<c10d::PyProcessGroup::PyWorkHolder>(work);
}

template <typename Call>
WorkPointer recorded(const char* title, const Tensors& tensors, const Call& call) {
    RecordingPointer recording = record(title, tensors);
    WorkPointer work = call();
    if (!recording || !work) return work;
    return c10::make_intrusive<RecordedWork>(std::move(work), std::move(recording));
}

// Lets the event last as long as the Work does; one that is over already ends it by dropping it.
WorkPointer ended_with(WorkPointer work, const RecordingPointer& recording) {
    if (recording)
        if (auto* pending = dynamic_cast<PendingWork*>(work.get())) pending->end_with_it(recording);
    return work;
}

}  // namespace

// One call, with what the way without Python needs of it.
struct AffluxBackend::Asked {
    Kind kind;
    bool async;
    std::chrono::milliseconds timeout;
    // Of the collective as the reducer carries it out; empty if it is Gloo's at any rate.
    std::vector<const void*> inputs{};
    std::vector<void*> outputs{};
    Tensors result{};
    // Whether tensors are where and what they should be; if not, Python decides.
    bool simple = true;
    // For the profiler: a name, and the tensors whose shapes it shows.
    const char* title = "afflux:collective";
    at::TensorList read{};
    std::function<py::tuple()> arguments{};
};

AffluxBackend::AffluxBackend(int rank, int size, py::object core,
                             c10::intrusive_ptr<c10d::Backend> gloo, std::shared_ptr<Turn> turn,
                             py::object calls, bool only_gloo, py::object splitter,
                             std::shared_ptr<Completions> completions, py::object timed_out)
    : Backend(rank, size),
      core_(core),
      splitter_(std::move(splitter)),
      capsule_(calls),
      may_block_(core.attr("may_block")),
      abandon_(core.attr("abandon")),
      timed_out_(std::move(timed_out)),
      gloo_(std::move(gloo)),
      turn_(std::move(turn)),
      calls_(calls_in(calls)),
      only_gloo_(only_gloo),
      process_(getpid()),
      completions_(std::move(completions)) {}

c10::intrusive_ptr<c10d::Backend> AffluxBackend::gloo() const {
    {
        const std::scoped_lock lock(gloo_mutex_);
        if (gloo_) return gloo_;
    }
    with_python([&] { core_.get().attr("check")(); });
    throw std::runtime_error("the group has been destroyed");
}

template <typename... Arguments>
WorkPointer AffluxBackend::in_python(const char* method, const Arguments&... arguments) {
    return with_python([&] { return work_of(core_.get().attr(method)(arguments...)); });
}

bool AffluxBackend::may_go_now(const Asked& asked) const {
    // What an asynchronous call asks of Gloo alone is queued.
    return (calls_ != nullptr || (only_gloo_ && !asked.async)) && asked.simple &&
           !observed.load() && getpid() == process_;
}

std::shared_ptr<const Known> AffluxBackend::known(const Asked& asked) {
    if (auto found = known_.find(asked.kind)) return found;
    Known made;
    with_python([&] {
        const py::object python =
            core_.get().attr("known_call")(name_of(asked.kind.method), asked.arguments());
        made.python = PythonObject(python);
        made.text = std::make_shared<const std::string>(python.attr("text").cast<std::string>());
        const py::object call = python.attr("prepared");
        made.way = way_of(python.attr("way").cast<std::string>());
        if (made.way == Way::Gloo)
            made.count = &gloo_counts_.slot(python.attr("counted").cast<std::string>());
        made.agreed = python.attr("call").attr("agreed_number").cast<std::uint64_t>();
        made.bytes = python.attr("size").cast<std::size_t>();
        if (call.is_none()) return;
        made.request.collective = call.attr("collective").cast<std::int32_t>();
        made.request.dtype = call.attr("dtype").cast<std::int32_t>();
        made.request.reduction = call.attr("reduction").cast<std::int32_t>();
        made.request.root = call.attr("root").cast<std::int32_t>();
        made.request.count = call.attr("count").cast<std::uint64_t>();
        made.request.fingerprint = call.attr("fingerprint").cast<std::uint64_t>();
    });
    return known_.add(asked.kind, std::move(made));
}

template <typename Gloo, typename General>
WorkPointer AffluxBackend::carry_out(Asked asked, const Gloo& pass_on, const General& general) {
    const RecordingPointer recording = record(asked.title, asked.read);
    if (!may_go_now(asked)) return ended_with(general(), recording);
    const std::shared_ptr<const Known> held = known(asked);
    const Known& call = *held;
    const bool native = call.way == Way::Native;
    const bool queued = asked.async && (!native || call.bytes > kMostAtOnce);
    if (queued || call.way == Way::Python || !turn_->try_enter_open())
        return ended_with(general(), recording);
    WorkPointer work = native ? run(call, asked) : wait_for_gloo(call, asked, pass_on);
    return ended_with(std::move(work), recording);
}

WorkPointer AffluxBackend::run(const Known& call, Asked& asked) {
    HeldTurn turn(*turn_);
    afflux_request request = call.request;
    request.inputs = asked.inputs.data();
    request.input_count = static_cast<std::uint32_t>(asked.inputs.size());
    request.outputs = asked.outputs.data();
    request.output_count = static_cast<std::uint32_t>(asked.outputs.size());
    request.history = turn_->history.load();
    const std::uint64_t sequence = turn_->begin(call.text);
    std::int64_t slice = asked.async ? kAsyncSliceNs : kSliceNs;
    if (asked.timeout.count() > 0)
        slice = std::min<std::int64_t>(slice, asked.timeout.count() * 1'000'000);
    afflux_outcome outcome{};
    const std::int32_t status = calls_->run(calls_->group, &request, slice, &outcome);
    if (status != AFFLUX_OVER)
        return hand_over(call, asked, slice, nullptr, [&] {
            const char* const why = status == AFFLUX_NOT_YET ? "" : outcome.text;
            return py::make_tuple(outcome.operation, status, why);
        });
    ++turn_->engine_operations;
    return c10::make_intrusive<FinishedWork>(std::move(asked.result), sequence);
}

template <typename Gloo>
WorkPointer AffluxBackend::wait_for_gloo(const Known& call, const Asked& asked,
                                         const Gloo& pass_on) {
    HeldTurn turn(*turn_);
    turn_->begin(call.text);
    // The next operation in shared memory compares it.
    turn_->note(call.agreed);
    ++*call.count;
    WorkPointer work;
    try {
        work = pass_on();
        if (work->wait(std::chrono::milliseconds(kGlooSliceNs / 1'000'000))) return work;
    } catch (...) {
        // Gloo's own error, or more time is needed: the group's thread finds out which.
        if (!work) {
            turn.leave();
            refused(std::current_exception());
        }
    }
    return hand_over(call, asked, kGlooSliceNs, work, [] { return py::tuple(); });
}

template <typename More>
WorkPointer AffluxBackend::hand_over(const Known& call, const Asked& asked, std::int64_t tried_ns,
                                     const WorkPointer& gloo, const More& more) {
    auto work = c10::make_intrusive<PendingWork>(
        *call.text, may_block_, timed_out_, asked.async ? PythonObject() : abandon_, completions_);
    with_python([&] {
        // Up to here no line of Python's runs, in which a signal handler might.
        const double timeout_s = static_cast<double>(asked.timeout.count()) / 1e3;
        const py::object gloos = gloo ? py::cast(gloo) : py::none();
        const py::tuple about = py::make_tuple(py::cast(work), call.python.get(), asked.arguments(),
                                               timeout_s, gloos, seconds(tried_ns));
        turn_->hand_over(handed(about + more()));
        wake_surely(core_.get().attr("wake"));
    });
    return work;
}

void AffluxBackend::refused(const std::exception_ptr& error) {
    std::string text = "Gloo refuses the call";
    try {
        std::rethrow_exception(error);
    } catch (const std::exception& why) {
        text = why.what();
    } catch (...) {
    }
    with_python([&] { core_.get().attr("refuse")(text); });
    std::rethrow_exception(error);
}

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
