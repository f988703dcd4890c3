// The thread that makes progress for all communicators of one device.
#pragma once

#include <poll.h>

#include <atomic>
#include <functional>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

namespace afflux::nccl {

class Comm;

// Seconds for which NCCL's proxy is taken to come again, so that the thread leaves work to it.
inline constexpr double kPatience = 2e-3;

class ProgressThread {
  public:
    ProgressThread();
    // No communicator may be left.
    ~ProgressThread();
    ProgressThread(const ProgressThread&) = delete;
    ProgressThread& operator=(const ProgressThread&) = delete;

    void add(Comm& comm);
    // Afterwards the thread does not touch it any more.
    void remove(Comm& comm);

    // Has something done by the thread, between two turns, and waits for it.
    void call(const std::function<void()>& task);

    // A request has been posted: wakes the thread if it does not come soon.
    void notice(double now) {
        if (until_.load(std::memory_order_seq_cst) > now + kPatience) wake();
    }
    void wake();

  private:
    void run();
    void do_tasks();
    void sleep(double until);

    std::vector<Comm*> comms_;
    std::vector<pollfd> polled_;
    // When it comes at the latest, while it sleeps; before it looks what there is, any time.
    std::atomic<double> until_ = std::numeric_limits<double>::infinity();
    std::atomic<bool> stopping_ = false;
    int wake_;
    std::mutex mutex_;
    std::vector<std::function<void()>> tasks_;
    std::thread thread_;
};

}  // namespace afflux::nccl
