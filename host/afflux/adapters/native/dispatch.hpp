// The way of one call: begun here, in C++, or given to Python.
#pragma once

#include <pybind11/chrono.h>
#if __has_include(<torch/csrc/distributed/c10d/py/PyProcessGroup.hpp>)
#include <torch/csrc/distributed/c10d/py/PyProcessGroup.hpp>
#else
#include <torch/csrc/distributed/c10d/PyProcessGroup.hpp>
#endif

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>

#include "backend.hpp"
#include "profiling.hpp"
#include "works.hpp"

namespace afflux {

// An operation that takes longer goes on in the group's thread, which listens for other ranks'
// failures, and is told how long it has taken.
inline constexpr std::int64_t kSliceNs = 100'000'000;
inline constexpr std::int64_t kGlooSliceNs = 250'000'000;

// A small asynchronous call is tried at once, as long as handing it to another thread and back may
// take where ranks share processors.
inline constexpr std::int64_t kAsyncSliceNs = 400'000;
inline constexpr std::size_t kMostAtOnce = std::size_t{256} << 10;

// Whether the tensor's elements lie one after the other at an address, and are what it shows.
inline bool lies_plainly(const at::Tensor& tensor) {
    return tensor.device().is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous() &&
           !tensor.is_neg() && !tensor.is_conj() && !tensor._is_zerotensor();
}

inline bool all_lie_plainly(const Tensors& tensors) {
    return std::all_of(tensors.begin(), tensors.end(), lies_plainly);
}

inline bool alike(const Tensors& tensors, const at::Tensor& one) {
    return std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& each) {
        return each.scalar_type() == one.scalar_type() && each.numel() == one.numel();
    });
}

inline int number_of(const c10d::ReduceOp& reduction) {
    return static_cast<int>(static_cast<c10d::ReduceOp::RedOpType>(reduction));
}

// A Work of Python's classes lives as long as its Python object.
inline WorkPointer work_of(const py::object& work) {
    if (py::isinstance<FinishedWork>(work) || py::isinstance<PendingWork>(work) ||
        !PyObject_HasAttrString(work.ptr(), "__dict__"))
        return work.cast<WorkPointer>();
    return c10::make_intrusive<c10d::PyProcessGroup::PyWorkHolder>(work);
}

// Lets the event last as long as the Work does; one that is over already ends it by dropping it.
inline WorkPointer ended_with(WorkPointer work, const RecordingPointer& recording) {
    if (recording)
        if (auto* pending = dynamic_cast<PendingWork*>(work.get())) pending->end_with_it(recording);
    return work;
}

// Wakes the thread that takes operations over. A signal handler may raise in any line of Python's,
// and the thread must learn of the operation all the same; then `wake` is told who gives it up.
void wake_surely(const py::object& wake);

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

template <typename... Arguments>
WorkPointer AffluxBackend::in_python(const char* method, const Arguments&... arguments) {
    return with_python([&] { return work_of(core_.get().attr(method)(arguments...)); });
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
        work = call.sums() ? sum(call, asked) : pass_on();
        if (work->wait(std::chrono::milliseconds(kGlooSliceNs / 1'000'000))) {
            if (!call.sums()) return work;
            return c10::make_intrusive<FinishedWork>(asked.result, turn_->sequence.load());
        }
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
        const py::tuple about =
            py::make_tuple(py::cast(work), call.python.get(), asked.arguments(), timeout_s, gloos,
                           static_cast<double>(tried_ns) / 1e9);
        turn_->hand_over(handed(about + more()));
        wake_surely(core_.get().attr("wake"));
    });
    return work;
}

}  // namespace afflux
