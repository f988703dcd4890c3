#include "worker/line.hpp"

#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <system_error>

namespace afflux::worker {
namespace {

using datagrams::Datagram;
using datagrams::UdpSocket;

// Bytes that are sent with one call while more packets are there to be answered: about three
// messages of 64 KB. The path is busy with them meanwhile.
constexpr std::size_t kBatchBytes = 180'000;

// Seconds for which an aggregator that has been heard, with the job's key, is taken to be where it
// was. A board answers ARP within a rate that others can use up, so no running job may depend on
// its host asking it again and again.
constexpr double kFresh = 1.0;

// Takes datagrams of `peer` only, and sends to it. Answers to more packets than its buffer holds
// are not asked for.
UdpSocket connected(const Address& peer, Session& session, std::size_t buffer_bytes) {
    UdpSocket made(peer.family());
    const std::size_t bytes = made.enlarge(buffer_bytes);
    // Of those that come: results are rounded.
    const std::size_t longest = packet::datagram_bytes(session.job.lanes);
    session.window.limit(datagrams::usable(bytes) / datagrams::charge(longest));
    // The aggregator refuses fragments, so better an error here than silence there.
    made.never_fragment();
    made.connect(peer);
    made.coalesce();
    return made;
}

// Takes what anyone sends to the multicast group, on the interface with this address, as others of
// this host may, too.
UdpSocket of_group(const Address& group, const Address& interface) {
    UdpSocket made;
    made.enlarge(kBufferBytes);
    // Each rank of the host has such a socket, and each gets every datagram.
    made.set(SOL_SOCKET, SO_REUSEADDR, "address reuse", 1);
    // Bound to the group's address: unicast datagrams to the port are not for the group.
    made.bind(group);
    ip_mreq membership{};
    membership.imr_multiaddr.s_addr = htonl(group.host());
    membership.imr_interface.s_addr = htonl(interface.host());
    if (setsockopt(made.number(), IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof membership) <
        0) {
        throw std::system_error(errno, std::generic_category(), "join");
    }
    made.coalesce();
    return made;
}

}  // namespace

double monotonic_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

Line::Line(const Address& aggregator, Session& session, LossSwitch* loss, std::size_t buffer_bytes)
    : aggregator_(aggregator),
      socket_(connected(aggregator, session, buffer_bytes)),
      session_(session),
      loss_(loss),
      receiver_(packet::kLongestDatagram, true),
      batch_(socket_) {}

void Line::join_group(const Address& group) {
    group_.emplace(of_group(group, own_address()));
}

void Line::close() {
    socket_.close();
    group_.reset();
}

void Line::open(Dialogue& dialogue) {
    // Packets of an earlier dialogue have no answer to wait for.
    batch_.clear();
    dialogue_ = &dialogue;
    dialogue.open(monotonic_now(), *this);
    flush();
}

std::uint64_t Line::overflows() const {
    std::uint64_t lost = 0;
    for (const int number : numbers()) {
        std::array<std::uint32_t, SK_MEMINFO_VARS> memory{};
        socklen_t bytes = sizeof memory;
        if (number >= 0 && getsockopt(number, SOL_SOCKET, SO_MEMINFO, memory.data(), &bytes) == 0) {
            lost += memory[SK_MEMINFO_DROPS];
        }
    }
    return lost;
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
    // The aggregator's threads each get messages of their own slots.
    const unsigned range = session_.job.range_of(packet::load_header(datagram.data).slot);
    batch_.add({}, {{datagram.data, datagram.bytes}}, range);
    waiting_ += datagram.bytes;
    if (waiting_ >= kBatchBytes) flush();
}

void Line::send_now(Octets datagram) {
    send(datagram);
    flush();
}

void Line::flush() {
    waiting_ = 0;
    const datagrams::Traffic before = batch_.traffic();
    batch_.flush(!batch_.empty() && monotonic_now() - session_.heard_at < kFresh);
    session_.counts.packets_sent += batch_.traffic().datagrams - before.datagrams;
    session_.counts.bytes_sent += batch_.traffic().bytes - before.bytes;
}

void Line::probe_liveness() {
    send_now(session_.join());
}

bool Line::receive() {
    bool more = receive_from(socket_);
    if (group_ && !idle()) more |= receive_from(*group_);
    flush();
    if (idle()) {
        dialogue_ = nullptr;
        batch_.clear();
    }
    return more;
}

bool Line::receive_from(const UdpSocket& socket) {
    const auto arrived = receiver_.receive(socket);
    const double time = arrived.empty() ? 0 : monotonic_now();
    Counts& counts = session_.counts;
    for (const Datagram& datagram : arrived) {
        if (idle()) break;
        std::size_t length = std::min(datagram.bytes, packet_.bytes());
        // The kernel checks who sends to a connected socket; to a group anyone may send.
        if (&socket != &socket_ && is_foreign(*datagram.source)) {
            length = 0;
        } else if (loss_ != nullptr && loss_->loses_inward()) {
            ++counts.dropped_received;
            continue;
        } else {
            ++counts.packets_received;
            counts.bytes_received += length;
        }
        std::memcpy(packet_.datagram(), datagram.data, length);
        dialogue_->receive(packet_, length, time, *this);
    }
    return receiver_.more();
}

}  // namespace afflux::worker
