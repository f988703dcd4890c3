// A call's event in torch's profiler, such as "afflux:all_reduce": from the call to its end, in
// whatever thread that is, as other backends have it.
#pragma once

#include <ATen/record_function.h>

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

namespace afflux {

// torch itself begins the event in a Work's constructor; this Work has no other purpose.
class Recording : public c10d::Work {
  public:
    Recording(const char* title, std::vector<at::Tensor> read)
        : Work(-1, c10d::OpType::UNKNOWN, title, std::move(read)) {}
    ~Recording() override { end(); }
    // Once or more often, in any thread.
    void end() { finish(); }
};

using RecordingPointer = c10::intrusive_ptr<Recording>;

// Returns none if no profiler runs, which costs some nanoseconds.
inline RecordingPointer record(const char* title, at::TensorList read) {
    if (!at::hasCallbacks()) return {};
    return c10::make_intrusive<Recording>(title, read.vec());
}

// A Work of Gloo's with an event of its call.
class RecordedWork : public c10d::Work {
  public:
    RecordedWork(c10::intrusive_ptr<c10d::Work> work, RecordingPointer recording)
        : work_(std::move(work)), recording_(std::move(recording)) {}

    bool wait(std::chrono::milliseconds timeout) override {
        // When it throws, too.
        const struct Ending {
            Recording& recording;
            ~Ending() { recording.end(); }
        } ending{*recording_};
        return work_->wait(timeout);
    }
    bool isCompleted() override {
        const bool over = work_->isCompleted();
        if (over) recording_->end();
        return over;
    }
    bool isSuccess() const override { return work_->isSuccess(); }
    std::exception_ptr exception() const override { return work_->exception(); }
    int sourceRank() const override { return work_->sourceRank(); }
    std::vector<at::Tensor> result() override { return work_->result(); }
    void synchronize() override { wait(kNoTimeout); }
    void blockCurrentStream() override { wait(kNoTimeout); }
    void abort() override { work_->abort(); }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return work_->getFuture(); }
    c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override {
        return work_->getFutureResult();
    }
    float getDuration() const override { return work_->getDuration(); }
    std::uint64_t getSequencenumber() const override { return work_->getSequencenumber(); }

  private:
    const c10::intrusive_ptr<c10d::Work> work_;
    const RecordingPointer recording_;
};

}  // namespace afflux
