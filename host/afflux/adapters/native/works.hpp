// The Works of a group's collectives, with futures of a list of tensors, as DDP's C++ wants them.
#pragma once

#include <c10/core/Event.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "completion.hpp"
#include "profiling.hpp"
#include "python_object.hpp"

namespace afflux {

using Future = c10::intrusive_ptr<c10::ivalue::Future>;

// `devices` are those of the tensors, but for the CPU.
Future make_future(std::vector<c10::Device> devices = {});

// One that was over before its call returned.
class FinishedWork : public c10d::Work {
  public:
    FinishedWork(std::vector<at::Tensor> tensors, std::uint64_t sequence)
        : tensors_(std::move(tensors)), sequence_(sequence) {}

    bool isCompleted() override { return true; }
    bool isSuccess() const override { return true; }
    std::exception_ptr exception() const override { return nullptr; }
    bool wait(std::chrono::milliseconds) override { return true; }
    void synchronize() override {}
    void blockCurrentStream() override {}
    std::vector<at::Tensor> result() override { return tensors_; }
    Future getFuture() override;
    std::uint64_t getSequencenumber() const override { return sequence_; }
#ifdef AFFLUX_TORCH_HAS_COMPLETION_HOOKS
    std::uint64_t getCompletionKey() const override { return key_; }
#endif

  private:
    const std::vector<at::Tensor> tensors_;
    const std::uint64_t sequence_;
    const std::uint64_t key_ = next_completion_key();
    Future future_;
};

// One that the progress thread carries out: see afflux.group.call.work.AffluxWork.
class PendingWork : public c10d::Work {
  public:
    // `may_block()` is False in the thread that would have to do the work;
    // `timed_out(call, seconds)` is the error of a wait that has timed out; `give_up(name)`, if
    // there is one, is called when a signal handler raises an exception of that name in a wait;
    // `completions` are the group's. The current streams of `devices` at the end are what those of
    // a waiter wait for.
    PendingWork(std::string call, PythonObject may_block, PythonObject timed_out,
                PythonObject give_up, std::shared_ptr<const Completions> completions,
                std::vector<c10::Device> devices = {});

    void succeed(std::vector<at::Tensor> tensors);
    void fail(py::object error);
    // Ends the event before anybody sees the end of the work.
    void end_with_it(RecordingPointer recording);

    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    bool wait(std::chrono::milliseconds timeout) override;
    void synchronize() override { wait(kNoTimeout); }
    void blockCurrentStream() override { wait(kNoTimeout); }
    std::vector<at::Tensor> result() override;
    Future getFuture() override { return future_; }
    std::uint64_t getSequencenumber() const override { return 0; }
    // In milliseconds, from the call on.
    float getDuration() const override;
#ifdef AFFLUX_TORCH_HAS_COMPLETION_HOOKS
    std::uint64_t getCompletionKey() const override { return key_; }
#endif

    const std::string& call() const { return call_; }
    py::object error() const;
    std::string text() const;

  private:
    bool end(std::vector<at::Tensor> tensors, PythonObject error);
    void be_over();
    bool over() const;  // with the lock
    void record_ends();
    struct Ending {
        PendingWork& work;
        ~Ending() { work.be_over(); }
    };
    void throw_error() const;
    void handle_signals();

    const std::string call_;
    const PythonObject may_block_, timed_out_, give_up_;
    const std::shared_ptr<const Completions> completions_;
    const std::uint64_t key_ = next_completion_key();
    const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    const std::vector<c10::Device> devices_;
    std::vector<c10::Event> landed_;  // the ends of the copies to these
    const Future future_;
    bool ending_ = false;
    std::thread::id ender_;
    std::vector<at::Tensor> tensors_;
    PythonObject error_;
    RecordingPointer recording_;
    float duration_ms_ = 0;
};

// Gloo's Work of a send or a receive, whose end is known when somebody waits for it.
class TransferWork : public c10d::Work {
  public:
    TransferWork(c10::intrusive_ptr<c10d::Work> work,
                 std::shared_ptr<const Completions> completions)
        : work_(std::move(work)), completions_(std::move(completions)) {}

    bool isCompleted() override { return work_->isCompleted(); }
    bool isSuccess() const override { return work_->isSuccess(); }
    std::exception_ptr exception() const override { return work_->exception(); }
    int sourceRank() const override { return work_->sourceRank(); }
    bool wait(std::chrono::milliseconds timeout) override;
    void synchronize() override { work_->synchronize(); }
    void blockCurrentStream() override { wait(kNoTimeout); }
    void abort() override { work_->abort(); }
    std::vector<at::Tensor> result() override { return work_->result(); }
    Future getFuture() override { return work_->getFuture(); }
    std::uint64_t getSequencenumber() const override { return work_->getSequencenumber(); }
#ifdef AFFLUX_TORCH_HAS_COMPLETION_HOOKS
    std::uint64_t getCompletionKey() const override { return key_; }
#endif

  private:
    const c10::intrusive_ptr<c10d::Work> work_;
    const std::shared_ptr<const Completions> completions_;
    const std::uint64_t key_ = next_completion_key();
    std::atomic<bool> told_{false};
};

}  // namespace afflux
