// The listener to the end of a group's operations: torch's flight recorder, from 2.15 on.
#pragma once

#include <torch/headeronly/version.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
#define AFFLUX_TORCH_HAS_COMPLETION_HOOKS 1
#endif

namespace afflux {

// By it torch finds the entry of a Work; no two Works of a process have the same.
inline std::uint64_t next_completion_key() {
    static std::atomic<std::uint64_t> latest{0};
    return latest.fetch_add(1, std::memory_order_relaxed) + 1;
}

// A group's hooks. Any thread.
class Completions {
  public:
    using Hook = std::function<void(std::uint64_t key, std::optional<float> duration_ms)>;

    void add(std::int64_t id, Hook hook) {
        const std::scoped_lock lock(mutex_);
        hooks_.insert_or_assign(id, std::move(hook));
        wanted_.store(true);
    }
    void remove(std::int64_t id) {
        const std::scoped_lock lock(mutex_);
        hooks_.erase(id);
        wanted_.store(!hooks_.empty());
    }
    bool wanted() const { return wanted_.load(); }

    // Tells of an operation that has succeeded; of one that failed nobody is told. The Work must
    // show its end already: torch asks it, should this come before it knows the key.
    void tell(std::uint64_t key, std::optional<float> duration_ms) const {
        if (!wanted()) return;
        std::vector<Hook> hooks;
        {
            const std::scoped_lock lock(mutex_);
            for (const auto& [id, hook] : hooks_) hooks.push_back(hook);
        }
        // Without the lock: a hook takes one under which torch removes it.
        for (const Hook& hook : hooks) hook(key, duration_ms);
    }

  private:
    mutable std::mutex mutex_;
    std::map<std::int64_t, Hook> hooks_;
    std::atomic<bool> wanted_{false};
};

}  // namespace afflux
