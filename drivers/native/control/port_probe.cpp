#include "control/port_probe.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <utility>

#include "control/own_files.hpp"

namespace afflux::control {

void PortProbe::begin() {
    if (number_ >= 0) return;
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const std::string port = std::to_string(place_.port);
    if (getaddrinfo(place_.host.c_str(), port.c_str(), &hints, &found) != 0) return;
    number_ = ::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (number_ >= 0) {
        own(number_);
        error_ = ::connect(number_, found->ai_addr, found->ai_addrlen) == 0 ? 0 : errno;
    }
    freeaddrinfo(found);
}

bool PortProbe::refused() {
    if (number_ < 0) return false;
    if (error_ == EINPROGRESS) {
        pollfd waiting{number_, POLLOUT, 0};
        if (::poll(&waiting, 1, 0) <= 0) return false;
        socklen_t bytes = sizeof error_;
        getsockopt(number_, SOL_SOCKET, SO_ERROR, &error_, &bytes);
    }
    stop();
    return error_ == ECONNREFUSED;
}

void PortProbe::stop() {
    if (number_ >= 0) close_own(std::exchange(number_, -1));
}

}  // namespace afflux::control
