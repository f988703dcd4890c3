#include "streams/wake.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace afflux::streams {

Wake::Wake() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

Wake::~Wake() {
    ::close(fd_);
}

void Wake::signal() const {
    eventfd_write(fd_, 1);
}

void Wake::clear() const {
    eventfd_t signals;
    eventfd_read(fd_, &signals);
}

}  // namespace afflux::streams
