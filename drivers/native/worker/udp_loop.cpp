#include "worker/udp_loop.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>

namespace afflux::worker {
namespace {

constexpr std::size_t kBatch = 64;

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

}  // namespace

// Datagrams that wait to be sent with one call.
class UdpLoop::Batch final : public PacketSink {
  public:
    Batch(UdpLoop& loop, Counts& counts) : loop_(loop), counts_(counts) {}

    void send(Octets datagram) override {
        if (loop_.loss_ != nullptr && loop_.loss_->loses_outward()) {
            ++counts_.dropped_sent;
            return;
        }
        if (size_ == kBatch) flush();
        // Only read, although the interface takes a pointer to non-const.
        vectors_[size_++] = {const_cast<std::uint8_t*>(datagram.data), datagram.bytes};
    }

    void flush() {
        std::array<mmsghdr, kBatch> messages;
        for (std::size_t i = 0; i < size_; ++i) {
            std::memset(&messages[i], 0, sizeof messages[i]);
            messages[i].msg_hdr.msg_iov = &vectors_[i];
            messages[i].msg_hdr.msg_iovlen = 1;
        }
        std::size_t at = 0;
        while (at < size_) {
            const int sent = sendmmsg(loop_.socket_.number(), &messages[at],
                                      static_cast<unsigned>(size_ - at), MSG_DONTWAIT);
            if (sent > 0) {
                for (int i = 0; i < sent; ++i, ++at) {
                    ++counts_.packets_sent;
                    counts_.bytes_sent += vectors_[at].iov_len;
                }
                continue;
            }
            // About an earlier datagram; this one has not been sent.
            if (errno == ECONNREFUSED) loop_.refused_ = true;
            if (errno == EMSGSIZE) loop_.too_long_ = vectors_[at].iov_len;
            // Nor otherwise: no buffers, or no route for now. The timers see to it.
            ++at;
        }
        size_ = 0;
    }

  private:
    UdpLoop& loop_;
    Counts& counts_;
    std::array<iovec, kBatch> vectors_;
    std::size_t size_ = 0;
};

UdpLoop::UdpLoop(const Address& aggregator, LossSwitch* loss)
    : aggregator_(aggregator),
      socket_(UdpSocket::connected(aggregator)),
      loss_(loss),
      buffers_(kBatch) {}

void UdpLoop::join_group(const Address& group) {
    group_.emplace(UdpSocket::of_group(group, own_address().host));
}

void UdpLoop::close() {
    socket_.close();
    group_.reset();
}

// The kernel checks who sends to a connected socket; to a group anyone may send.
bool UdpLoop::is_foreign(std::uint32_t host, std::uint16_t port) const {
    return host != aggregator_.host || port != aggregator_.port;
}

void UdpLoop::open(Session& session, Dialogue& dialogue) {
    Batch batch(*this, session.counts);
    dialogue.open(now(), batch);
    batch.flush();
}

void UdpLoop::run(Session& session, Dialogue& dialogue, double until) {
    Batch batch(*this, session.counts);
    while (too_long_ == 0) {
        bool more = receive(socket_, session, dialogue, batch);
        if (group_) more |= receive(*group_, session, dialogue, batch);
        batch.flush();
        if (dialogue.done()) return;
        double time = now();
        if (time >= dialogue.next_timer()) {
            dialogue.expire(time, batch);
            batch.flush();
            time = now();
        }
        if (time >= until) return;
        if (!more) wait(std::min(dialogue.next_timer(), until) - time);
    }
}

bool UdpLoop::receive(const UdpSocket& socket, Session& session, Dialogue& dialogue,
                      PacketSink& out) {
    std::array<mmsghdr, kBatch> messages;
    std::array<iovec, kBatch> vectors;
    std::array<sockaddr_in, kBatch> sources;
    for (std::size_t i = 0; i < kBatch; ++i) {
        vectors[i] = {buffers_[i].datagram(), buffers_[i].bytes()};
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
    const double time = now();
    Counts& counts = session.counts;
    for (std::size_t i = 0; i < static_cast<std::size_t>(received) && !dialogue.done(); ++i) {
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
        dialogue.receive(buffers_[i], length, time, out);
    }
    return static_cast<std::size_t>(received) == kBatch;
}

void UdpLoop::wait(double seconds) const {
    if (seconds <= 0) return;
    std::array<pollfd, 2> sockets{
        {{socket_.number(), POLLIN, 0}, {group_ ? group_->number() : -1, POLLIN, 0}}};
    timespec time;
    time.tv_sec = static_cast<time_t>(seconds);
    time.tv_nsec = static_cast<long>((seconds - std::floor(seconds)) * 1e9);
    // poll ignores a negative file number. Interrupted or not, the caller looks at the clock.
    ppoll(sockets.data(), sockets.size(), &time, nullptr);
}

}  // namespace afflux::worker
