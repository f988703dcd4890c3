#include "streams/own_sockets.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>

namespace afflux::streams {
namespace {

// Those of this process. The lock is held during a fork, so that the child finds them whole.
std::mutex& lock() {
    static std::mutex mutex;
    return mutex;
}

std::vector<const OwnSockets*>& registered() {
    static std::vector<const OwnSockets*> all;
    return all;
}

void close_all(const std::vector<int>& sockets) {
    for (const int socket : sockets)
        if (socket >= 0) ::close(socket);
}

void before_fork() {
    lock().lock();
}

void after_fork() {
    lock().unlock();
}

void in_child() {
    for (const OwnSockets* each : registered()) close_all(each->all());
    registered().clear();
    lock().unlock();
}

}  // namespace

OwnSockets::OwnSockets(std::vector<int> sockets) : sockets_(std::move(sockets)) {
    [[maybe_unused]] static const int once = ::pthread_atfork(before_fork, after_fork, in_child);
    const std::scoped_lock held(lock());
    registered().push_back(this);
}

OwnSockets::~OwnSockets() {
    const std::scoped_lock held(lock());
    // In a forked process it is no longer there.
    if (std::erase(registered(), this) != 0) close_all(sockets_);
}

}  // namespace afflux::streams
