// Sleeps until a word in shared memory changes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace afflux::shared {

// Sleeps for up to `limit` if `word` is `expected`, until `futex_wake`. May return early: the
// caller looks again.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                std::chrono::nanoseconds limit);

// Wakes all threads that sleep on `word`, in any process.
void futex_wake(const std::atomic<std::uint32_t>& word);

}  // namespace afflux::shared
