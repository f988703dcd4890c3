/* Whose turn it is in a group, for whoever begins its operations in C++: the module `_native` and
 * the adapter for torch, which is compiled against other headers.
 *
 * Ranks that order operations differently wait for one another for ever, and two threads that share
 * a Gloo group can mix up its messages. So whoever carries out an operation has the turn from
 * before its first step until after its last, and hands it over together with an operation that
 * another thread is to bring to its end.
 *
 * A thread that runs Python's signal handlers, which may call a collective, must not be in Python
 * while it has the turn.
 */
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

/* An operation on its way to another thread: what only sender and receiver know. */
using Handed = std::shared_ptr<void>;

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

    // Waits for the turn, free or handed over, and takes it; returns what was handed over.
    Handed enter() {
        std::unique_lock lock(mutex_);
        left_.wait(lock, [&] { return !taken_ || handed_; });
        take();
        return std::exchange(handed_, nullptr);
    }

    void leave() {
        {
            const std::scoped_lock lock(mutex_);
            owner_.store(std::thread::id());
            taken_ = false;
        }
        left_.notify_one();
    }

    // Keeps the turn for the thread that takes the operation over, or that waits in `enter`. The
    // operation is pending from now on.
    void hand_over(Handed operation) {
        {
            const std::scoped_lock lock(mutex_);
            ++pending;
            owner_.store(std::thread::id());
            handed_ = std::move(operation);
        }
        left_.notify_all();
    }
    // Takes the turn if it has been handed over; returns what with, or nothing.
    Handed take_over() {
        const std::scoped_lock lock(mutex_);
        if (handed_) take();
        return std::exchange(handed_, nullptr);
    }

    bool mine() const { return owner_.load() == std::this_thread::get_id(); }

    std::uint64_t begin(Text call) {
        const std::scoped_lock lock(text_mutex_);
        latest_ = std::move(call);
        running.store(true);
        return ++sequence;
    }
    void end() { running.store(false); }

    // Mixes a call to Gloo into the history.
    void note(std::uint64_t number) {
        const std::uint64_t mixed = (history.load() ^ number) * 0x9E3779B97F4A7C15ULL + 1;
        history.store(mixed ^ mixed >> 32);
    }

    std::string latest() const {
        const std::scoped_lock lock(text_mutex_);
        return latest_ ? *latest_ : std::string();
    }

    // Operations that have been submitted or handed over, and whose callbacks have not returned: a
    // synchronous call stays behind them.
    std::atomic<int> pending{0};
    // Whether the group takes no more operations.
    std::atomic<bool> closed{false};
    // Whether the latest operation is in progress.
    std::atomic<bool> running{false};
    // Number of the latest operation, from 1; 0 before the first.
    std::atomic<std::uint64_t> sequence{0};
    // Stands for all calls to Gloo so far, and their order.
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
    Handed handed_;  // while the turn is taken, and by nobody
    std::atomic<std::thread::id> owner_{};
    mutable std::mutex text_mutex_;
    Text latest_;
};

// The turn, ended and given back at the end of a scope unless it has been handed over by then.
class HeldTurn {
  public:
    explicit HeldTurn(Turn& turn) : turn_(turn) {}
    HeldTurn(const HeldTurn&) = delete;
    HeldTurn& operator=(const HeldTurn&) = delete;
    ~HeldTurn() { leave(); }

    void leave() {
        if (!turn_.mine()) return;
        turn_.end();
        turn_.leave();
    }

  private:
    Turn& turn_;
};

}  // namespace afflux
