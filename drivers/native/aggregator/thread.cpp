#include "aggregator/thread.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include "packet/packet_buffer.hpp"

namespace afflux::aggregator {
namespace {

using engine::Counter;

int checked(int number, const char* what) {
    if (number < 0) throw std::system_error(errno, std::generic_category(), what);
    return number;
}

int copy_of(int file) {
    return checked(fcntl(file, F_DUPFD_CLOEXEC, 0), "no copy of the socket");
}

// For IPv4 with the MAC address that stands for it, as in frames between hosts' sockets.
packet::Endpoint endpoint_of(const datagrams::Address& source) {
    if (source.is_ipv6()) {
        return {.port = source.port(), .ipv6 = {source.octets(), source.zone()}};
    }
    const std::uint32_t host = source.host();
    const auto octet = [host](int shift) { return static_cast<std::uint8_t>(host >> shift); };
    return {{2, 0, octet(24), octet(16), octet(8), octet(0)}, host, source.port()};
}

}  // namespace

Server::Thread::Thread(Server& server, unsigned number, int socket)
    : server_(server),
      number_(number),
      share_(server.engine_.share(number)),
      socket_(copy_of(socket)),
      receiver_(packet::kLongestPartialSums, socket_.coalesce()),
      parent_receiver_(packet::kLongestDatagram, true),
      outbox_(socket_, ports_, share_.core),
      epoll_(checked(epoll_create1(EPOLL_CLOEXEC), "no epoll")),
      wakes_(checked(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "no eventfd")) {
    watch(socket_.number());
    watch(wakes_.get());
    const std::lock_guard alone(share_.mutex);
    former_sink_ = share_.core.send_to(&outbox_);
}

Server::Thread::~Thread() {
    close();
}

void Server::Thread::close() {
    const std::lock_guard alone(share_.mutex);
    if (former_sink_ != nullptr) share_.core.send_to(std::exchange(former_sink_, nullptr));
    ports_.clear();
    socket_.close();
}

void Server::Thread::serve() {
    while (!server_.stopping_.load(std::memory_order_relaxed)) {
        if (!flush()) {
            // Nothing is taken meanwhile, which could change what waits to be sent. Datagrams that
            // come stay in the socket's buffer, whose size bounds the credit.
            wait_until_writable();
            continue;
        }
        const std::span<const datagrams::Datagram> arrived = receiver_.receive(socket_);
        bool more = receiver_.more();
        {
            const std::lock_guard alone(share_.mutex);
            share_.core.at(std::chrono::steady_clock::now().time_since_epoch());
            share_.core.carry_out();
            take_all(arrived, share_.core.local().port);
            take_handed_off();
            more |= take_from_parents();
            outbox_.flush_to_parents();
            jobs_changed_ = share_.core.jobs_changed();
            note_traffic();
        }
        if (!more && flush()) wait();
    }
}

void Server::Thread::take_all(std::span<const datagrams::Datagram> all, std::uint16_t port) {
    for (const datagrams::Datagram& each : all) {
        take(endpoint_of(*each.source), port, {each.data, each.bytes});
    }
}

void Server::Thread::take_all_of_parent(std::span<const datagrams::Datagram> all,
                                        const ParentPort& port) {
    const engine::Job* job = share_.core.job_at(port.job);
    // The kernel has seen to it that they come from the parent.
    const packet::Endpoint parent =
        job != nullptr && job->parent ? job->parent->endpoint : packet::Endpoint{};
    for (const datagrams::Datagram& each : all) {
        take(parent, port.port, {each.data, each.bytes});
    }
}

void Server::Thread::take(const packet::Endpoint& peer, std::uint16_t port,
                          packet::Octets payload) {
    engine::Core& core = share_.core;
    engine::Counters& counters = core.counters();
    const bool whole = payload.bytes >= wire::kHeaderBytes;
    engine::Arrival arrival{.packet = {}, .peer = peer, .port = port};
    if (whole) {
        arrival.packet = {packet::load_header(payload.data), payload.data + wire::kHeaderBytes};
        const unsigned owner = core.owner(arrival.packet.header, port, number_);
        if (owner != number_) return hand_over(owner, peer, port, payload);
    }
    ++counters[Counter::FramesIn];
    counters[Counter::BytesIn] += wire::kAffluxOffset + payload.bytes;
    if (!whole) {
        ++counters[Counter::NotOurs];
    } else if (core.passes_length(arrival.packet.header, payload.bytes)) {
        core.admit(arrival);
    }
}

void Server::Thread::hand_over(unsigned to, const packet::Endpoint& peer, std::uint16_t port,
                               packet::Octets payload) {
    Thread& owner = *server_.threads_[to];
    ++totals_.handed_off;
    switch (owner.handoff_queue_.put(peer, port, payload)) {
        case HandoffQueue::Put::First:
            owner.wake();
            break;
        case HandoffQueue::Put::More:
            break;
        case HandoffQueue::Put::Full:
            ++share_.core.counters()[Counter::FramesIn];
            ++share_.core.counters()[Counter::ReceiveOverflow];
            share_.core.counters()[Counter::BytesIn] += wire::kAffluxOffset + payload.bytes;
    }
}

void Server::Thread::take_handed_off() {
    for (const HandedOff& packet : handoff_queue_.take()) {
        take(packet.peer, packet.port, {packet.payload.data(), packet.payload.size()});
    }
}

bool Server::Thread::take_from_parents() {
    bool more = false;
    for (const auto& port : ports_) {
        const auto arrived = parent_receiver_.receive(port->socket);
        if (port->connected) {
            take_all_of_parent(arrived, *port);
        } else {
            take_all(arrived, port->port);
        }
        more |= parent_receiver_.more();
    }
    return more;
}

bool Server::Thread::flush() {
    // The kernel copies results out of the slots. If a job has ended since they were put there,
    // these may be another's, which a thread could be writing to: so nobody may change jobs
    // meanwhile.
    const std::lock_guard alone(share_.mutex);
    if (share_.core.jobs_changed() != jobs_changed_) outbox_.drop();
    return outbox_.flush();
}

std::uint16_t Server::Thread::parent_port(unsigned job) const {
    return static_cast<std::uint16_t>(share_.core.local().port + 1 + job);
}

void Server::Thread::open_parent_port(unsigned job, int socket) {
    datagrams::UdpSocket own(copy_of(socket));
    own.coalesce();
    const std::lock_guard alone(share_.mutex);
    watch(own.number());
    ports_.push_back(std::make_unique<ParentPort>(job, parent_port(job), std::move(own)));
}

void Server::Thread::close_parent_port(unsigned job) {
    const std::lock_guard alone(share_.mutex);
    // A socket leaves the set when its last copy is closed.
    std::erase_if(ports_,
                  [port = parent_port(job)](const auto& open) { return open->port == port; });
}

void Server::Thread::wake() {
    const std::uint64_t one = 1;
    // It fails only when it is too full to need more.
    [[maybe_unused]] const auto written = write(wakes_.get(), &one, sizeof one);
}

void Server::Thread::watch(int file) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = file;
    checked(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, file, &event), "not watched");
}

void Server::Thread::wait() {
    ++waits_;
    std::array<epoll_event, 8> events;
    const int ready = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < ready; ++i) {
        if (events[static_cast<std::size_t>(i)].data.fd == wakes_.get()) clear_wakes();
    }
}

void Server::Thread::wait_until_writable() {
    ++waits_;
    std::array<pollfd, 2> files{{{socket_.number(), POLLOUT, 0}, {wakes_.get(), POLLIN, 0}}};
    poll(files.data(), files.size(), -1);
    // All that a wake may be for is looked at before the next wait for packets.
    if (files[1].revents != 0) clear_wakes();
}

void Server::Thread::clear_wakes() {
    std::uint64_t times = 0;
    [[maybe_unused]] const auto got = ::read(wakes_.get(), &times, sizeof times);
}

void Server::Thread::note_traffic() {
    totals_.received = receiver_.traffic();
    totals_.sent = outbox_.traffic();
    totals_.waits = waits_;
}

void Server::Thread::add_to(Totals& totals) const {
    const auto add = [](datagrams::Traffic& sum, const datagrams::Traffic& part) {
        sum.calls += part.calls;
        sum.messages += part.messages;
        sum.datagrams += part.datagrams;
        sum.bytes += part.bytes;
    };
    const std::lock_guard alone(share_.mutex);
    add(totals.received, totals_.received);
    add(totals.sent, totals_.sent);
    totals.handed_off += totals_.handed_off;
    totals.waits += totals_.waits;
}

}  // namespace afflux::aggregator
