#include "shared/futex.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace afflux::shared {

void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                std::chrono::nanoseconds limit) {
    constexpr std::chrono::nanoseconds::rep kSecond = 1'000'000'000;
    const timespec time{static_cast<std::time_t>(limit.count() / kSecond),
                        static_cast<long>(limit.count() % kSecond)};
    // Not FUTEX_PRIVATE_FLAG: the word is shared between processes.
    syscall(SYS_futex, &word, FUTEX_WAIT, expected, &time, nullptr, 0);
}

void futex_wake(const std::atomic<std::uint32_t>& word) {
    syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace afflux::shared
