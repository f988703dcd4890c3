#include "control/own_files.hpp"

#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <set>

namespace afflux::control {
namespace {

// The lock is held during a fork, so that the child finds the files whole.
std::mutex& lock() {
    static std::mutex mutex;
    return mutex;
}

std::set<int>& files() {
    static std::set<int> all;
    return all;
}

void before_fork() {
    lock().lock();
}

void in_parent() {
    lock().unlock();
}

void in_child() {
    for (const int each : files()) ::close(each);
    files().clear();
    lock().unlock();
}

}  // namespace

void own(int number) {
    [[maybe_unused]] static const int once = ::pthread_atfork(before_fork, in_parent, in_child);
    const std::scoped_lock held(lock());
    files().insert(number);
}

void disown(int number) {
    const std::scoped_lock held(lock());
    files().erase(number);
}

void close_own(int number) {
    const std::scoped_lock held(lock());
    if (files().erase(number) != 0) ::close(number);
}

}  // namespace afflux::control
