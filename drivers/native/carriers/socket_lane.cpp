#include "carriers/socket_lane.hpp"

#include <sys/socket.h>

#include <cerrno>

namespace afflux::carriers {
namespace {

// Fewer bytes come in one segment of the kernel's, so that waiting for all of them saves nothing.
constexpr std::size_t kWorthWaiting = std::size_t{64} << 10;

msghdr message_of(const iovec* vectors, std::size_t count) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(vectors);
    message.msg_iovlen = count;
    return message;
}

}  // namespace

ssize_t SocketStream::send(const iovec* vectors, std::size_t count) {
    const msghdr message = message_of(vectors, count);
    ssize_t sent;
    do sent = ::sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent;
}

ssize_t SocketStream::receive(const iovec* vectors, std::size_t count) {
    msghdr message = message_of(vectors, count);
    ssize_t got;
    do got = ::recvmsg(fd_, &message, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    return got;
}

SocketLane::SocketLane(const std::vector<int>& sockets)
    : streams_(sockets.begin(), sockets.end()), expected_(sockets.size(), 1) {}

short SocketLane::events(std::size_t, bool input, bool output) const {
    return static_cast<short>((input ? POLLIN : 0) | (output ? POLLOUT : 0));
}

void SocketLane::expect(std::size_t member, std::size_t bytes) {
    const int wanted = bytes < kWorthWaiting ? 1 : static_cast<int>(bytes);
    if (wanted == expected_[member]) return;
    // The kernel wakes for less if its buffer has no room for as much, and for the end.
    if (::setsockopt(streams_[member].fd(), SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted) == 0)
        expected_[member] = wanted;
}

void SocketLane::end() {
    for (const SocketStream& each : streams_)
        if (each.fd() >= 0) ::shutdown(each.fd(), SHUT_WR);
}

}  // namespace afflux::carriers
