#include "worker/line.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>

namespace afflux::worker {

double monotonic_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

Line::Line(const Address& aggregator, Session& session, LossSwitch* loss)
    : aggregator_(aggregator),
      socket_(UdpSocket::connected(aggregator)),
      session_(session),
      loss_(loss) {}

void Line::join_group(const Address& group) {
    group_.emplace(UdpSocket::of_group(group, own_address().host));
}

void Line::close() {
    socket_.close();
    group_.reset();
}

// The kernel checks who sends to a connected socket; to a group anyone may send.
bool Line::is_foreign(std::uint32_t host, std::uint16_t port) const {
    return host != aggregator_.host || port != aggregator_.port;
}

void Line::open(Dialogue& dialogue) {
    dialogue_ = &dialogue;
    dialogue.open(monotonic_now(), *this);
    flush();
}

double Line::next_timer() const {
    return idle() ? std::numeric_limits<double>::infinity() : dialogue_->next_timer();
}

void Line::expire(double now) {
    dialogue_->expire(now, *this);
    flush();
}

std::array<int, 2> Line::numbers() const {
    return {socket_.number(), group_ ? group_->number() : -1};
}

void Line::send(Octets datagram) {
    if (loss_ != nullptr && loss_->loses_outward()) {
        ++session_.counts.dropped_sent;
        return;
    }
    if (size_ == kBatch) flush();
    // Only read, although the interface takes a pointer to non-const.
    vectors_[size_++] = {const_cast<std::uint8_t*>(datagram.data), datagram.bytes};
}

void Line::flush() {
    std::array<mmsghdr, kBatch> messages;
    for (std::size_t i = 0; i < size_; ++i) {
        std::memset(&messages[i], 0, sizeof messages[i]);
        messages[i].msg_hdr.msg_iov = &vectors_[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    std::size_t at = 0;
    while (at < size_) {
        const int sent = sendmmsg(socket_.number(), &messages[at],
                                  static_cast<unsigned>(size_ - at), MSG_DONTWAIT);
        if (sent > 0) {
            for (int i = 0; i < sent; ++i, ++at) {
                ++session_.counts.packets_sent;
                session_.counts.bytes_sent += vectors_[at].iov_len;
            }
            continue;
        }
        // About an earlier datagram; this one has not been sent.
        if (errno == ECONNREFUSED) refused_ = true;
        if (errno == EMSGSIZE) too_long_ = vectors_[at].iov_len;
        // Nor otherwise: no buffers, or no route for now. The timers see to it.
        ++at;
    }
    size_ = 0;
}

bool Line::receive(ReceiveBuffers& buffers) {
    bool more = receive_from(socket_, buffers);
    if (group_ && !idle()) more |= receive_from(*group_, buffers);
    flush();
    if (idle()) dialogue_ = nullptr;
    return more;
}

bool Line::receive_from(const UdpSocket& socket, ReceiveBuffers& buffers) {
    std::array<mmsghdr, kBatch> messages;
    std::array<iovec, kBatch> vectors;
    std::array<sockaddr_in, kBatch> sources;
    for (std::size_t i = 0; i < kBatch; ++i) {
        vectors[i] = {buffers[i].datagram(), buffers[i].bytes()};
        std::memset(&messages[i], 0, sizeof messages[i]);
        messages[i].msg_hdr.msg_iov = &vectors[i];
        messages[i].msg_hdr.msg_iovlen = 1;
        messages[i].msg_hdr.msg_name = &sources[i];
        messages[i].msg_hdr.msg_namelen = sizeof sources[i];
    }
    const int received = recvmmsg(socket.number(), messages.data(), kBatch, MSG_DONTWAIT, nullptr);
    if (received < 0) {
        // The kernel reports send errors once, on receive; they are not fatal.
        if (errno == ECONNREFUSED) refused_ = true;
        return errno == ECONNREFUSED || errno == EINTR;
    }
    const double time = monotonic_now();
    Counts& counts = session_.counts;
    for (std::size_t i = 0; i < static_cast<std::size_t>(received) && !idle(); ++i) {
        std::size_t length = messages[i].msg_len;
        if (&socket != &socket_ &&
            is_foreign(ntohl(sources[i].sin_addr.s_addr), ntohs(sources[i].sin_port))) {
            length = 0;
        } else if (loss_ != nullptr && loss_->loses_inward()) {
            ++counts.dropped_received;
            continue;
        } else {
            ++counts.packets_received;
            counts.bytes_received += length;
        }
        dialogue_->receive(buffers[i], length, time, *this);
    }
    return static_cast<std::size_t>(received) == kBatch;
}

}  // namespace afflux::worker
