#include "nccl/progress.hpp"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <future>
#include <limits>
#include <memory>
#include <system_error>

#include "control/line_socket.hpp"
#include "nccl/comm.hpp"

namespace afflux::nccl {

ProgressThread::ProgressThread() : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (wake_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    thread_ = std::thread([this] { run(); });
    pthread_setname_np(thread_.native_handle(), "afflux-nccl");
}

ProgressThread::~ProgressThread() {
    stopping_ = true;
    wake();
    thread_.join();
    close(wake_);
}

void ProgressThread::wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
}

void ProgressThread::call(const std::function<void()>& task) {
    const auto done = std::make_shared<std::promise<void>>();
    {
        const std::scoped_lock alone(mutex_);
        tasks_.emplace_back([&task, done] {
            task();
            done->set_value();
        });
    }
    wake();
    done->get_future().wait();
}

void ProgressThread::add(Comm& comm) {
    call([this, &comm] { comms_.push_back(&comm); });
}

void ProgressThread::remove(Comm& comm) {
    call([this, &comm] { std::erase(comms_, &comm); });
}

void ProgressThread::do_tasks() {
    std::vector<std::function<void()>> tasks;
    {
        const std::scoped_lock alone(mutex_);
        tasks.swap(tasks_);
    }
    for (const auto& each : tasks) each();
}

void ProgressThread::run() {
    while (!stopping_) {
        do_tasks();
        polled_.assign(1, {wake_, POLLIN, 0});
        double next = std::numeric_limits<double>::infinity();
        // Before it looks: a request that is posted meanwhile is either seen, or wakes it.
        until_.store(next, std::memory_order_seq_cst);
        for (Comm* each : comms_) next = std::min(next, each->progress(polled_));
        sleep(next);
    }
}

void ProgressThread::sleep(double until) {
    until_.store(until, std::memory_order_seq_cst);
    const double seconds = std::max(0.0, until - control::monotonic_now());
    timespec time{};
    if (std::isfinite(seconds)) {
        time.tv_sec = static_cast<time_t>(seconds);
        time.tv_nsec = static_cast<long>((seconds - std::floor(seconds)) * 1e9);
    }
    const int ready =
        ppoll(polled_.data(), polled_.size(), std::isfinite(seconds) ? &time : nullptr, nullptr);
    if (ready > 0 && polled_[0].revents != 0) {
        std::uint64_t count;
        [[maybe_unused]] const ssize_t bytes = read(wake_, &count, sizeof count);
    }
}

}  // namespace afflux::nccl
