// Packets that a core sends, as datagrams for the sockets that they leave from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "datagrams/send_batch.hpp"
#include "datagrams/udp_socket.hpp"
#include "engine/core.hpp"
#include "engine/packet_sink.hpp"

namespace afflux::aggregator {

// The socket on which the parent of a job answers. If it is connected to the parent, that is where
// the parent is, whatever endpoint the engine's registers had room for.
struct ParentPort {
    ParentPort(unsigned below, std::uint16_t own, datagrams::UdpSocket&& open)
        : job(below),
          port(own),
          socket(std::move(open)),
          connected(socket.is_connected()),
          batch(socket) {}

    unsigned job;
    std::uint16_t port;
    datagrams::UdpSocket socket;
    bool connected;
    datagrams::SendBatch batch;
};

// Headers are composed here; words and blocks are sent from where the core has them.
class Outbox final : public engine::PacketSink {
  public:
    // All must live as long. Ports may be added and removed while nothing waits for them.
    Outbox(const datagrams::UdpSocket& socket,
           const std::vector<std::unique_ptr<ParentPort>>& ports, engine::Core& core);

    void open(const engine::Body& body, bool passing) override;
    void send(const packet::Endpoint& from, const packet::Endpoint& to,
              const packet::Header& header) override;

    // Sends to workers and groups; returns whether nothing is left (SendBatch::flush).
    bool flush();

    // Sends to the parents. Packets that their sockets do not take in a while are lost.
    void flush_to_parents();

    // Forgets what waits for workers and groups.
    void drop();

    const datagrams::Traffic& traffic() const { return batch_.traffic(); }

  private:
    // A place for this many octets until everything has been sent.
    std::uint8_t* keep(std::size_t octets);
    ParentPort* port_at(std::uint16_t number) const;

    static constexpr std::size_t kChunk = 1 << 16;

    const std::vector<std::unique_ptr<ParentPort>>& ports_;
    engine::Core& core_;
    datagrams::SendBatch batch_;
    // Header and parts of the body that is open.
    std::vector<datagrams::Part> parts_;
    std::size_t body_bytes_ = 0;
    std::vector<std::unique_ptr<std::uint8_t[]>> chunks_;
    std::size_t chunk_ = 0;  // the one in use
    std::size_t used_ = 0;   // octets of it
};

}  // namespace afflux::aggregator
