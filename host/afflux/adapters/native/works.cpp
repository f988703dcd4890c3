#include "works.hpp"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace afflux {
namespace {

// Python's signal handlers run between slices, as in any wait of Python's own.
constexpr std::chrono::milliseconds kSlice{100};

}  // namespace

Future make_future(std::vector<c10::Device> devices) {
    return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                    std::move(devices));
}

Future FinishedWork::getFuture() {
    const std::scoped_lock lock(mutex_);
    if (!future_) {
        future_ = make_future();
        future_->markCompleted(c10::IValue(tensors_));
    }
    return future_;
}

PendingWork::PendingWork(std::string call, PythonObject may_block, PythonObject timed_out,
                         PythonObject give_up, std::shared_ptr<const Completions> completions,
                         std::vector<c10::Device> devices)
    : call_(std::move(call)),
      may_block_(std::move(may_block)),
      timed_out_(std::move(timed_out)),
      give_up_(std::move(give_up)),
      completions_(std::move(completions)),
      devices_(devices),
      future_(make_future(std::move(devices))) {}

bool PendingWork::end(std::vector<at::Tensor> tensors, PythonObject error) {
    RecordingPointer recording;
    {
        const std::scoped_lock lock(mutex_);
        recording.swap(recording_);
    }
    // Profilers run here, and know nothing of this lock.
    if (recording) recording->end();
    {
        const std::scoped_lock lock(mutex_);
        if (ending_) return false;
        ending_ = true;
        ender_ = std::this_thread::get_id();
        tensors_ = std::move(tensors);
        error_ = std::move(error);
        duration_ms_ =
            std::chrono::duration<float, std::milli>(std::chrono::steady_clock::now() - start_)
                .count();
    }
    return true;
}

// A thread that has waited may ask the future at once, so it ends first. Its callbacks run
// meanwhile, and find that the Work is over in their thread.
void PendingWork::be_over() {
    {
        const std::scoped_lock lock(mutex_);
        completed_ = true;
    }
    cv_.notify_all();
}

bool PendingWork::over() const {
    return completed_ || (ending_ && ender_ == std::this_thread::get_id());
}

void PendingWork::succeed(std::vector<at::Tensor> tensors) {
    const py::gil_scoped_release no_python;
    // Callbacks run here, and may take Python's lock.
    if (!end(tensors, PythonObject())) return;
    const Ending ending{*this};
    completions_->tell(key_, duration_ms_);
    try {
        record_ends();
        future_->markCompleted(c10::IValue(std::move(tensors)));
    } catch (...) {
        // A device that has failed lets nothing be recorded.
        future_->setErrorIfNeeded(std::current_exception());
        throw;
    }
}

void PendingWork::record_ends() {
    for (const c10::Device& device : devices_) {
        c10::Event event(device.type());
        event.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
        const std::scoped_lock lock(mutex_);
        landed_.push_back(std::move(event));
    }
}

void PendingWork::fail(py::object error) {
    const PythonObject held(std::move(error));
    const py::gil_scoped_release no_python;
    if (!end({}, held)) return;
    const Ending ending{*this};
    future_->setError(exception());
}

void PendingWork::end_with_it(RecordingPointer recording) {
    const std::scoped_lock lock(mutex_);
    if (!ending_) recording_ = std::move(recording);
}

bool PendingWork::isCompleted() {
    const std::scoped_lock lock(mutex_);
    return over() && std::all_of(landed_.begin(), landed_.end(),
                                 [](const c10::Event& event) { return event.query(); });
}

bool PendingWork::isSuccess() const {
    const std::scoped_lock lock(mutex_);
    return over() && !error_;
}

py::object PendingWork::error() const {
    const std::scoped_lock lock(mutex_);
    return error_ ? error_.get() : py::none();
}

std::exception_ptr PendingWork::exception() const {
    try {
        throw_error();
    } catch (...) {
        return std::current_exception();
    }
    return nullptr;
}

void PendingWork::throw_error() const {
    PythonObject error;
    {
        const std::scoped_lock lock(mutex_);
        error = error_;
    }
    if (!error) return;
    const PythonLock python;
    // Each wait raises an error of its own. Its traceback has the frame that waits, and that often
    // this Work and its group: if the Work had it, Python could free none of them.
    throw_exception(py::module_::import("afflux.group.call.errors").attr("another")(error.get()));
}

void PendingWork::handle_signals() {
    with_python([&] {
        if (PyErr_CheckSignals() == 0) return;
        py::error_already_set raised;
        const auto ended = [this] {
            const std::scoped_lock lock(mutex_);
            return over();
        };
        if (give_up_ && !ended()) {
            try {
                give_up_.get()(raised.type().attr("__name__"));
            } catch (py::error_already_set& another) {
                // One more signal, in a line of Python's: the first one's exception goes on.
                another.discard_as_unraisable("an operation that is given up");
                give_up_.get()(raised.type().attr("__name__"));
            }
        }
        throw raised;
    });
}

bool PendingWork::wait(std::chrono::milliseconds timeout) {
    using Clock = std::chrono::steady_clock;
    const bool limited = timeout > kNoTimeout;
    const Clock::time_point start = Clock::now();
    std::unique_lock lock(mutex_);
    if (!over()) {
        lock.unlock();
        with_python([&] {
            if (!may_block_.get()().cast<bool>())
                throw std::runtime_error(
                    call_ +
                    ": a callback of a future waits for an operation that was queued behind its "
                    "own; start it inside the callback, or wait outside");
        });
        lock.lock();
    }
    while (!over()) {
        auto slice = kSlice;
        if (limited) {
            const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
                start + timeout - Clock::now());
            if (left.count() < 0) {
                lock.unlock();
                const PythonLock python;
                const double seconds = static_cast<double>(timeout.count()) / 1e3;
                throw_exception(timed_out_.get()(call_, seconds));
            }
            slice = std::min(slice, left + std::chrono::milliseconds(1));
        }
        if (cv_.wait_for(lock, slice, [&] { return completed_; })) break;
        lock.unlock();
        handle_signals();
        lock.lock();
    }
    lock.unlock();
    throw_error();
    // Not yet completed is one that a hook waits for within its end.
    if (!devices_.empty() && future_->completed()) future_->waitAndThrow();
    return true;
}

std::vector<at::Tensor> PendingWork::result() {
    const std::scoped_lock lock(mutex_);
    return tensors_;
}

float PendingWork::getDuration() const {
    const std::scoped_lock lock(mutex_);
    if (!completed_) throw std::runtime_error(call_ + ": it has not ended");
    return duration_ms_;
}

bool TransferWork::wait(std::chrono::milliseconds timeout) {
    const bool over = work_->wait(timeout);
    if (over && !told_.exchange(true)) completions_->tell(key_, std::nullopt);
    return over;
}

std::string PendingWork::text() const {
    const std::scoped_lock lock(mutex_);
    return "<AffluxWork " + call_ + (!over() ? ": in flight>" : error_ ? ": failed>" : ": done>");
}

}  // namespace afflux
