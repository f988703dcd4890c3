#include "aggregator/outbox.hpp"

#include <poll.h>

#include <cstring>

namespace afflux::aggregator {
namespace {

// How often and how long a parent's socket is waited for.
constexpr int kTries = 10;
constexpr int kWaitMs = 5;

datagrams::Address address_of(const packet::Endpoint& to) {
    if (to.ipv6 == packet::Ipv6Host{}) return {to.address, to.port};
    return {to.ipv6.octets, to.ipv6.zone, to.port};
}

}  // namespace

Outbox::Outbox(const datagrams::UdpSocket& socket,
               const std::vector<std::unique_ptr<ParentPort>>& ports, engine::Core& core)
    : ports_(ports), core_(core), batch_(socket) {}

void Outbox::open(const engine::Body& body, bool passing) {
    // The first part is the header's, which comes with each packet.
    parts_.assign(1, {});
    body_bytes_ = 0;
    for (std::size_t i = 0; i < body.count; ++i) {
        packet::Octets part = body.parts[i];
        if (passing) {
            std::uint8_t* kept = keep(part.bytes);
            std::memcpy(kept, part.data, part.bytes);
            part.data = kept;
        }
        parts_.emplace_back(part.data, part.bytes);
        body_bytes_ += part.bytes;
    }
}

void Outbox::send(const packet::Endpoint& from, const packet::Endpoint& to,
                  const packet::Header& header) {
    engine::Counters& counters = core_.counters();
    ++counters[engine::Counter::FramesOut];
    counters[engine::Counter::BytesOut] += wire::kLookaheadOffset + body_bytes_;
    datagrams::SendBatch* batch = &batch_;
    bool connected = false;
    if (from.port != core_.local().port) {
        ParentPort* port = port_at(from.port);
        if (port == nullptr) return;
        batch = &port->batch;
        connected = port->connected;
    }
    std::uint8_t* head = keep(wire::kHeaderBytes);
    packet::store_header(head, header);
    parts_.front() = {head, wire::kHeaderBytes};
    batch->add(connected ? datagrams::Address() : address_of(to), parts_);
}

bool Outbox::flush() {
    if (!batch_.empty() && !batch_.flush()) return false;
    chunk_ = used_ = 0;
    return true;
}

void Outbox::drop() {
    batch_.clear();
    chunk_ = used_ = 0;
}

void Outbox::flush_to_parents() {
    for (const auto& port : ports_) {
        for (int tried = 0; !port->batch.empty() && !port->batch.flush(); ++tried) {
            if (tried == kTries) port->batch.clear();
            pollfd writable{port->socket.number(), POLLOUT, 0};
            poll(&writable, 1, kWaitMs);
        }
    }
}

std::uint8_t* Outbox::keep(std::size_t octets) {
    if (!chunks_.empty() && used_ + octets > kChunk) {
        ++chunk_;
        used_ = 0;
    }
    if (chunk_ == chunks_.size()) {
        chunks_.push_back(std::make_unique_for_overwrite<std::uint8_t[]>(kChunk));
    }
    std::uint8_t* place = chunks_[chunk_].get() + used_;
    used_ += octets;
    return place;
}

ParentPort* Outbox::port_at(std::uint16_t number) const {
    for (const auto& port : ports_) {
        if (port->port == number) return port.get();
    }
    return nullptr;
}

}  // namespace afflux::aggregator
