// Whose turn it is in a group: `afflux.group.call.turn.Turn` for threads without Python's lock.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace afflux {

using Text = std::shared_ptr<const std::string>;

class Turn {
  public:
    // Takes the turn if nobody has it, nobody waits in the queue and the group takes operations.
    bool try_enter_open() {
        if (closed.load() || pending.load() != 0 || !take_if_free()) return false;
        // It may have closed before the turn was taken; once it is, closing waits for it.
        if (!closed.load()) return true;
        leave();
        return false;
    }
    bool try_enter() { return pending.load() == 0 && take_if_free(); }

    // Waits for the turn, free or handed over; takes it, and returns whether it was handed over.
    bool enter() {
        std::unique_lock lock(mutex_);
        left_.wait(lock, [&] { return !taken_ || handed_; });
        const bool handed = std::exchange(handed_, false);
        take();
        return handed;
    }

    void leave() {
        {
            const std::scoped_lock lock(mutex_);
            owner_.store(std::thread::id());
            taken_ = false;
        }
        left_.notify_one();
    }

    // Keeps the turn for the thread that takes it over, or that waits in `enter`.
    void hand_over() {
        {
            const std::scoped_lock lock(mutex_);
            owner_.store(std::thread::id());
            handed_ = true;
        }
        left_.notify_all();
    }
    // Takes the turn if it has been handed over.
    bool take_over() {
        const std::scoped_lock lock(mutex_);
        if (!std::exchange(handed_, false)) return false;
        take();
        return true;
    }

    bool mine() const { return owner_.load() == std::this_thread::get_id(); }

    std::uint64_t begin(Text call) {
        const std::scoped_lock lock(text_mutex_);
        latest_ = std::move(call);
        running.store(true);
        return ++sequence;
    }
    void end() { running.store(false); }

    // Mixes a call to Gloo into the history, as the turn in Python does.
    void note(std::uint64_t number) {
        const std::uint64_t mixed = (history.load() ^ number) * 0x9E3779B97F4A7C15ULL + 1;
        history.store(mixed ^ mixed >> 32);
    }

    std::string latest() const {
        const std::scoped_lock lock(text_mutex_);
        return latest_ ? *latest_ : std::string();
    }

    std::atomic<int> pending{0};
    std::atomic<bool> closed{false};
    std::atomic<bool> running{false};
    std::atomic<std::uint64_t> sequence{0};
    std::atomic<std::uint64_t> history{0};
    // Operations that the reducer has carried out.
    std::atomic<std::uint64_t> engine_operations{0};

  private:
    bool take_if_free() {
        const std::unique_lock lock(mutex_, std::try_to_lock);
        if (!lock.owns_lock() || taken_) return false;
        take();
        return true;
    }
    void take() {
        taken_ = true;
        owner_.store(std::this_thread::get_id());
    }

    std::mutex mutex_;
    std::condition_variable left_;
    bool taken_ = false;
    bool handed_ = false;  // taken, by nobody
    std::atomic<std::thread::id> owner_{};
    mutable std::mutex text_mutex_;
    Text latest_;
};

}  // namespace afflux
