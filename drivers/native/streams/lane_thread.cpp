#include "streams/lane_thread.hpp"

#include <chrono>
#include <utility>

namespace afflux::streams {
namespace {

// It is woken for whatever matters.
constexpr std::chrono::seconds kIdleWait{1};

}  // namespace

LaneThread::LaneThread(std::vector<Driver::Lane> lanes, const Wake& found, WaitCounts& counts)
    : found_(found), driver_(std::move(lanes), wake_.fd(), counts), thread_([this] { work(); }) {}

LaneThread::~LaneThread() {
    if (!thread_.joinable()) return;
    {
        const std::scoped_lock lock(mutex_);
        ends_ = true;
        runs_ = false;
    }
    changed_.notify_all();
    wake_.signal();
    thread_.join();
}

void LaneThread::begin(std::size_t lanes) {
    const std::scoped_lock lock(mutex_);
    driver_.use(lanes);
    over_ = false;
    error_ = nullptr;
}

void LaneThread::run() {
    {
        const std::scoped_lock lock(mutex_);
        if (over_ || error_) return;
        runs_ = true;
    }
    changed_.notify_all();
}

void LaneThread::pause() {
    std::unique_lock lock(mutex_);
    runs_ = false;
    if (busy_) wake_.signal();
    changed_.wait(lock, [this] { return !busy_; });
}

bool LaneThread::over() {
    const std::scoped_lock lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    return over_;
}

void LaneThread::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return runs_ || ends_; });
        if (ends_) return;
        busy_ = true;
        wake_.clear();
        while (runs_ && !over_ && !error_) {
            lock.unlock();
            std::exception_ptr error;
            bool done = false;
            try {
                done = driver_.over();
                if (!done && !driver_.progress()) driver_.wait(Clock::now() + kIdleWait);
            } catch (...) {
                error = std::current_exception();
            }
            lock.lock();
            over_ = done;
            error_ = error;
        }
        busy_ = runs_ = false;
        changed_.notify_all();
        found_.signal();
    }
}

}  // namespace afflux::streams
