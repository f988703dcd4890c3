#include "control/line_socket.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <vector>

#include "control/errors.hpp"
#include "control/names.hpp"
#include "control/own_files.hpp"

namespace afflux::control {
namespace {

// Seconds after which a peer whose host has vanished is noticed: by keepalive, or, if a line has
// not been acknowledged by then, for which the kernel would try for a quarter of an hour, by a
// timeout.
constexpr int kKeepIdle = 10, kKeepEvery = 5, kKeepCount = 3;
constexpr int kTimeout = kKeepIdle + kKeepEvery * kKeepCount;

std::string reason(int error) {
    return std::strerror(error);
}

std::pair<std::string, std::uint16_t> named(const sockaddr_storage& where, socklen_t bytes) {
    std::array<char, NI_MAXHOST> host{};
    std::array<char, NI_MAXSERV> port{};
    const int failed =
        getnameinfo(reinterpret_cast<const sockaddr*>(&where), bytes, host.data(), host.size(),
                    port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV);
    if (failed != 0) return {"", std::uint16_t{0}};
    return {host.data(), static_cast<std::uint16_t>(std::stoi(port.data()))};
}

int milliseconds_until(double deadline) {
    return static_cast<int>(std::clamp(std::ceil(1e3 * (deadline - monotonic_now())), 0.0, 1e6));
}

// The socket, or -1 and why.
int connected(const addrinfo& place, double deadline, int& error) {
    const int number = ::socket(place.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (number < 0) {
        error = errno;
        return -1;
    }
    error = ::connect(number, place.ai_addr, place.ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
        pollfd waiting{number, POLLOUT, 0};
        int ready;
        while ((ready = ::poll(&waiting, 1, milliseconds_until(deadline))) < 0 && errno == EINTR) {
        }
        socklen_t bytes = sizeof error;
        if (ready == 0) {
            error = ETIMEDOUT;
        } else {
            getsockopt(number, SOL_SOCKET, SO_ERROR, &error, &bytes);
        }
    }
    if (error == 0) return number;
    ::close(number);
    return -1;
}

}  // namespace

double monotonic_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

std::string authority(const std::string& host, std::uint16_t port) {
    const bool ipv6 = host.find(':') != host.npos;
    return (ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

LineSocket::LineSocket(int number) : number_(number) {
    control::own(number);
    const auto set = [number](int level, int option, int value) {
        setsockopt(number, level, option, &value, sizeof value);
    };
    fcntl(number, F_SETFL, fcntl(number, F_GETFL) | O_NONBLOCK);
    set(IPPROTO_TCP, TCP_NODELAY, 1);
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdle);
    set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepEvery);
    set(IPPROTO_TCP, TCP_KEEPCNT, kKeepCount);
    set(IPPROTO_TCP, TCP_USER_TIMEOUT, 1000 * kTimeout);
}

LineSocket& LineSocket::operator=(LineSocket&& other) noexcept {
    std::swap(number_, other.number_);
    std::swap(broken_, other.broken_);
    std::swap(rest_, other.rest_);
    return *this;
}

LineSocket LineSocket::connect(const std::string& host, std::uint16_t port, double deadline) {
    const std::string where = authority(host, port);
    const Addresses found = resolve(host, port, SOCK_STREAM, deadline);
    std::vector<const addrinfo*> places;
    for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
        places.push_back(each);
    }
    // IPv4 first, as engines in hardware have no other.
    std::stable_partition(places.begin(), places.end(),
                          [](const addrinfo* each) { return each->ai_family == AF_INET; });
    int first_error = 0;
    for (std::size_t i = 0; i < places.size(); ++i) {
        // The rest of the time is for all that are left.
        const double now = monotonic_now();
        const double share =
            std::max(deadline - now, 1e-3) / static_cast<double>(places.size() - i);
        int error = 0;
        const int number = connected(*places[i], now + share, error);
        if (number >= 0) return LineSocket(number);
        if (first_error == 0) first_error = error;
    }
    const std::string text = where + ": " + reason(first_error);
    if (first_error == ECONNREFUSED) throw NobodyListens(text);
    throw Unreachable(text);
}

void LineSocket::wait(short events, double deadline) const {
    pollfd waiting{number_, events, 0};
    for (;;) {
        const int ready = ::poll(&waiting, 1, milliseconds_until(deadline));
        if (ready > 0) return;
        if (ready == 0) throw Unreachable("no answer in time");
        if (errno != EINTR) throw Unreachable(reason(errno));
    }
}

void LineSocket::send(std::string_view line, double deadline) {
    send_octets(std::string(line) + "\n", deadline);
}

void LineSocket::send_octets(std::string_view octets, double deadline) {
    while (!octets.empty()) {
        const ssize_t count = ::send(number_, octets.data(), octets.size(), MSG_NOSIGNAL);
        if (count > 0) {
            octets.remove_prefix(static_cast<std::size_t>(count));
        } else if (errno == EAGAIN) {
            wait(POLLOUT, deadline);
        } else if (errno != EINTR) {
            broken_ = true;
            throw Unreachable(reason(errno));
        }
    }
}

bool LineSocket::read(std::size_t most) {
    std::array<char, 4096> octets;
    for (;;) {
        const ssize_t count = ::recv(number_, octets.data(), std::min(octets.size(), most), 0);
        if (count > 0) {
            rest_.append(octets.data(), static_cast<std::size_t>(count));
            return true;
        }
        if (count < 0 && errno == EAGAIN) return false;
        if (count < 0 && errno == EINTR) continue;
        broken_ = true;
        throw Unreachable(count == 0 ? "it closed the connection" : reason(errno));
    }
}

std::optional<std::string> LineSocket::whole_line(std::size_t most) {
    const std::size_t end = rest_.find('\n');
    if (end == rest_.npos) {
        if (rest_.size() > most) throw Misbehaved("a line is too long");
        return std::nullopt;
    }
    std::string line = rest_.substr(0, end);
    rest_.erase(0, end + 1);
    return line;
}

std::string LineSocket::receive(double deadline, std::size_t most) {
    for (;;) {
        if (std::optional<std::string> line = whole_line(most)) return *line;
        if (!read()) wait(POLLIN, deadline);
    }
}

std::string LineSocket::receive_octets(std::size_t count, double deadline) {
    while (rest_.size() < count) {
        if (!read(count - rest_.size())) wait(POLLIN, deadline);
    }
    std::string octets = rest_.substr(0, count);
    rest_.erase(0, count);
    return octets;
}

std::optional<std::string> LineSocket::take(std::size_t most) {
    for (;;) {
        if (std::optional<std::string> line = whole_line(most)) return line;
        if (!read()) return std::nullopt;
    }
}

std::pair<std::string, std::uint16_t> LineSocket::own() const {
    sockaddr_storage where{};
    socklen_t bytes = sizeof where;
    getsockname(number_, reinterpret_cast<sockaddr*>(&where), &bytes);
    return named(where, bytes);
}

std::pair<std::string, std::uint16_t> LineSocket::peer() const {
    sockaddr_storage where{};
    socklen_t bytes = sizeof where;
    getpeername(number_, reinterpret_cast<sockaddr*>(&where), &bytes);
    return named(where, bytes);
}

int LineSocket::release() {
    if (!rest_.empty()) throw Misbehaved("it has sent more than a line");
    const int never = 0;
    setsockopt(number_, IPPROTO_TCP, TCP_USER_TIMEOUT, &never, sizeof never);
    disown(number_);
    return std::exchange(number_, -1);
}

void LineSocket::close() {
    if (number_ >= 0) close_own(std::exchange(number_, -1));
}

}  // namespace afflux::control
