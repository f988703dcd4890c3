// The state of one thread of the server, and its loop.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "aggregator/file_number.hpp"
#include "aggregator/handoff_queue.hpp"
#include "aggregator/outbox.hpp"
#include "aggregator/server.hpp"
#include "datagrams/receiver.hpp"

namespace afflux::aggregator {

class Server::Thread {
  public:
    Thread(Server& server, unsigned number, int socket);
    ~Thread();

    void serve();
    // May be called more than once.
    void close();
    void wake();
    void open_parent_port(unsigned job, int socket);
    void close_parent_port(unsigned job);
    void add_to(Totals& totals) const;

    const datagrams::UdpSocket& socket() const { return socket_; }

  private:
    // Take what has come on a port of the engine; the core is locked.
    void take_all(std::span<const datagrams::Datagram> all, std::uint16_t port);
    void take_all_of_parent(std::span<const datagrams::Datagram> all, const ParentPort& port);
    void take(const packet::Endpoint& peer, std::uint16_t port, packet::Octets payload);
    void hand_over(unsigned to, const packet::Endpoint& peer, std::uint16_t port,
                   packet::Octets payload);
    void take_handed_off();
    // Returns whether there may be more.
    bool take_from_parents();

    // Sends what the outbox holds, unless jobs have changed since. Returns whether nothing is left.
    bool flush();
    std::uint16_t parent_port(unsigned job) const;
    void watch(int file);
    void wait();
    void wait_until_writable();
    void clear_wakes();
    void note_traffic();

    Server& server_;
    unsigned number_;
    engine::Engine::Share& share_;
    datagrams::UdpSocket socket_;
    datagrams::Receiver receiver_;
    datagrams::Receiver parent_receiver_;
    // Guarded by the core's lock, with their batches.
    std::vector<std::unique_ptr<ParentPort>> ports_;
    Outbox outbox_;
    std::uint64_t jobs_changed_ = 0;  // Core::jobs_changed() when the outbox was filled
    engine::PacketSink* former_sink_;
    HandoffQueue handoff_queue_;
    FileNumber epoll_;
    FileNumber wakes_;
    // For totals(): written by this thread only, guarded by the core's lock.
    Totals totals_;
    std::uint64_t waits_ = 0;
};

}  // namespace afflux::aggregator
