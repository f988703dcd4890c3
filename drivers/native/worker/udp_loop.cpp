#include "worker/udp_loop.hpp"

#include <arpa/inet.h>
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
class Line::Batch final : public Outlet {
  public:
    Batch(Line& line, Counts& counts) : line_(line), counts_(counts) {}

    void send(Octets datagram) override {
        if (line_.loss_ != nullptr && line_.loss_->loses_outward()) {
            ++counts_.dropped_sent;
            return;
        }
        if (size_ == kBatch) flush();
        // Only read, though the interface does not say so.
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
            const int sent = sendmmsg(line_.socket_, &messages[at],
                                      static_cast<unsigned>(size_ - at), MSG_DONTWAIT);
            if (sent > 0) {
                for (int i = 0; i < sent; ++i, ++at) {
                    ++counts_.packets_sent;
                    counts_.bytes_sent += vectors_[at].iov_len;
                }
                continue;
            }
            // About an earlier datagram; this one has not been sent.
            if (errno == ECONNREFUSED) line_.refused_ = true;
            if (errno == EMSGSIZE) line_.too_long_ = vectors_[at].iov_len;
            // Nor otherwise: no buffers, or no route for now. The timers see to it.
            ++at;
        }
        size_ = 0;
    }

  private:
    Line& line_;
    Counts& counts_;
    std::array<iovec, kBatch> vectors_;
    std::size_t size_ = 0;
};

Line::Line(int socket, int group, std::uint32_t address, std::uint16_t port, LossSwitch* loss)
    : socket_(socket), group_(group), address_(address), port_(port), loss_(loss), rooms_(kBatch) {}

void Line::open(Session& session, Operation& operation) {
    Batch batch(*this, session.counts);
    operation.open(now(), batch);
    batch.flush();
}

void Line::run(Session& session, Operation& operation, double until) {
    Batch batch(*this, session.counts);
    while (too_long_ == 0) {
        bool more = receive(socket_, session, operation, batch);
        if (group_ >= 0) more |= receive(group_, session, operation, batch);
        batch.flush();
        if (operation.done()) return;
        double time = now();
        if (time >= operation.next_timer()) {
            operation.expire(time, batch);
            batch.flush();
            time = now();
        }
        if (time >= until) return;
        if (!more) wait(std::min(operation.next_timer(), until) - time);
    }
}

bool Line::receive(int socket, Session& session, Operation& operation, Outlet& out) {
    std::array<mmsghdr, kBatch> messages;
    std::array<iovec, kBatch> vectors;
    std::array<sockaddr_in, kBatch> sources;
    for (std::size_t i = 0; i < kBatch; ++i) {
        vectors[i] = {rooms_[i].datagram(), rooms_[i].bytes()};
        std::memset(&messages[i], 0, sizeof messages[i]);
        messages[i].msg_hdr.msg_iov = &vectors[i];
        messages[i].msg_hdr.msg_iovlen = 1;
        messages[i].msg_hdr.msg_name = &sources[i];
        messages[i].msg_hdr.msg_namelen = sizeof sources[i];
    }
    const int received = recvmmsg(socket, messages.data(), kBatch, MSG_DONTWAIT, nullptr);
    if (received < 0) {
        // Errors about what was sent are told once, and are no reason to stop.
        if (errno == ECONNREFUSED) refused_ = true;
        return errno == ECONNREFUSED || errno == EINTR;
    }
    const double time = now();
    Counts& counts = session.counts;
    for (std::size_t i = 0; i < static_cast<std::size_t>(received) && !operation.done(); ++i) {
        std::size_t length = messages[i].msg_len;
        const bool foreign = socket == group_ && (ntohl(sources[i].sin_addr.s_addr) != address_ ||
                                                  ntohs(sources[i].sin_port) != port_);
        if (foreign) {
            // Anyone may send to a group.
            length = 0;
        } else if (loss_ != nullptr && loss_->loses_inward()) {
            ++counts.dropped_received;
            continue;
        } else {
            ++counts.packets_received;
            counts.bytes_received += length;
        }
        operation.receive(rooms_[i], length, time, out);
    }
    return static_cast<std::size_t>(received) == kBatch;
}

void Line::wait(double seconds) const {
    if (seconds <= 0) return;
    std::array<pollfd, 2> sockets{{{socket_, POLLIN, 0}, {group_, POLLIN, 0}}};
    timespec time;
    time.tv_sec = static_cast<time_t>(seconds);
    time.tv_nsec = static_cast<long>((seconds - std::floor(seconds)) * 1e9);
    // poll ignores a negative file number. Interrupted or not, the caller looks at the clock.
    ppoll(sockets.data(), sockets.size(), &time, nullptr);
}

}  // namespace afflux::worker
