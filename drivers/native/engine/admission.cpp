// The checks of the protocol's sections 5.2 and 5.6, in their order. A frame is counted for the
// first that it fails, and changes no state before all have passed.
#include <algorithm>

#include "engine/engine.hpp"
#include "packet/octets.hpp"

namespace afflux::engine {
namespace {

constexpr std::uint8_t kUdp = 17;
// The only flag that may be set is "don't fragment".
constexpr std::uint16_t kFragmented = 0xBFFF;

bool known_opcode(const packet::Header& header) {
    return header.opcode() <= static_cast<std::uint8_t>(wire::Opcode::Umin);
}

bool right_udp_checksum(const std::uint8_t* ip, std::size_t udp_bytes) {
    const std::uint8_t* udp = ip + wire::kIpv4Bytes;
    if (packet::load_big_16(udp + 6) == 0) return true;
    // Pseudo-header: both addresses, protocol, length.
    const std::uint64_t pseudo = packet::add_words(kUdp + udp_bytes, ip + 12, 8);
    return packet::fold(packet::add_words(pseudo, udp, udp_bytes)) == 0xFFFF;
}

}  // namespace

std::optional<SoftEngine::Arrival> SoftEngine::parse(packet::Octets frame) {
    const auto drop = [this](Counter counter) -> std::optional<Arrival> {
        ++counters_[counter];
        return std::nullopt;
    };
    if (frame.bytes < wire::kLookaheadOffset) return drop(Counter::NotOurs);
    const std::uint8_t* ip = frame.data + wire::kEthernetBytes;
    const std::uint8_t* udp = ip + wire::kIpv4Bytes;
    if (!std::equal(local_.mac.begin(), local_.mac.end(), frame.data) ||
        packet::load_big_16(frame.data + 12) != 0x0800 || ip[0] >> 4 != 4 || ip[9] != kUdp ||
        packet::load_big_32(ip + 16) != local_.address) {
        return drop(Counter::NotOurs);
    }
    if (ip[0] != 0x45 || (packet::load_big_16(ip + 6) & kFragmented) != 0 ||
        packet::fold(packet::add_words(0, ip, wire::kIpv4Bytes)) != 0xFFFF) {
        return drop(Counter::BadIp);
    }
    Arrival arrival{
        .packet = {packet::load_header(frame.data + wire::kAffluxOffset),
                   frame.data + wire::kLookaheadOffset},
        .peer = {.address = packet::load_big_32(ip + 12), .port = packet::load_big_16(udp)},
        .port = packet::load_big_16(udp + 2),
    };
    std::copy_n(frame.data + 6, arrival.peer.mac.size(), arrival.peer.mac.begin());
    if (arrival.port != local_.port &&
        static_cast<std::uint16_t>(arrival.port - local_.port - 1) >= jobs_.size()) {
        return drop(Counter::NotOurs);
    }
    const packet::Header& header = arrival.packet.header;
    if (header.version() != wire::kVersion) {
        refuse(arrival, Counter::BadVersion, wire::Refusal::Version);
        return std::nullopt;
    }
    const std::size_t total = packet::load_big_16(ip + 2);
    const std::size_t udp_bytes = packet::load_big_16(udp + 4);
    if (frame.bytes != wire::kEthernetBytes + total || total != wire::kIpv4Bytes + udp_bytes ||
        udp_bytes != wire::kUdpBytes + wire::kUdpPayloadMin + header.blocks() * wire::kBlockBytes ||
        header.blocks() > limits_.lanes) {
        return drop(Counter::BadLength);
    }
    if (!right_udp_checksum(ip, udp_bytes)) return drop(Counter::BadChecksum);
    return arrival;
}

void SoftEngine::from_worker(const Arrival& arrival) {
    const packet::Header& header = arrival.packet.header;
    const wire::Type type = header.type();
    const bool joins = type == wire::Type::Join;
    const bool probes = type == wire::Type::Probe;
    const bool contributes = type == wire::Type::Data || type == wire::Type::Conflict;
    if (!(joins || probes || contributes) || !known_opcode(header)) {
        ++counters_[Counter::BadType];
        return;
    }
    Job* job = job_at(header.job);
    if (job == nullptr) return refuse(arrival, Counter::BadJob, wire::Refusal::Job);
    if (header.key != job->key) return refuse(arrival, Counter::BadKey, wire::Refusal::Key);
    if (header.worker >= job->workers) {
        return refuse(arrival, Counter::BadWorker, wire::Refusal::Worker);
    }
    if (joins) return join(*job, arrival);
    const std::optional<packet::Endpoint>& peer = job->peers[header.worker];
    if (!peer || peer->address != arrival.peer.address || peer->port != arrival.peer.port) {
        ++counters_[Counter::BadAddress];
    } else if (header.slot >= job->slots) {
        ++counters_[Counter::BadSlot];
    } else if (header.present >> job->lanes != 0 || (probes && header.present != 0)) {
        ++counters_[Counter::BadPresent];
    } else if (probes) {
        rounds_.probe(*job, header, arrival.peer);
    } else {
        rounds_.contribution(*job, arrival.packet);
    }
}

void SoftEngine::from_parent(const Arrival& arrival) {
    const packet::Header& header = arrival.packet.header;
    const wire::Type type = header.type();
    const bool joined = type == wire::Type::Joined;
    const bool result = type == wire::Type::Result || type == wire::Type::Conflict;
    Job* job = job_at(static_cast<std::uint16_t>(arrival.port - local_.port - 1));
    const Parent* parent = job != nullptr && job->parent ? &*job->parent : nullptr;
    if (!(joined || result) || !known_opcode(header)) {
        ++counters_[Counter::BadType];
    } else if (parent == nullptr || header.job != parent->job) {
        ++counters_[Counter::BadJob];
    } else if (header.key != parent->key) {
        ++counters_[Counter::BadKey];
    } else if (header.worker != parent->worker) {
        ++counters_[Counter::BadWorker];
    } else if (arrival.peer.address != parent->endpoint.address ||
               arrival.peer.port != parent->endpoint.port) {
        ++counters_[Counter::BadAddress];
    } else if (joined && header.present != 0) {
        ++counters_[Counter::BadPresent];
    } else if (joined) {
        ++counters_[Counter::Joins];
        job->parent_joined = true;
    } else if (header.slot >= job->slots) {
        ++counters_[Counter::BadSlot];
    } else if (header.present >> job->lanes != 0) {
        ++counters_[Counter::BadPresent];
    } else {
        rounds_.parent_result(*job, arrival.packet);
    }
}

void SoftEngine::join(Job& job, const Arrival& arrival) {
    const packet::Header& header = arrival.packet.header;
    if (header.present != 0) {
        ++counters_[Counter::BadPresent];
        return;
    }
    ++counters_[Counter::Joins];
    job.peers[header.worker] = arrival.peer;
    const packet::Endpoint group = job.group.value_or(packet::Endpoint{});
    sender_.answer(header, arrival.peer, wire::Type::Joined,
                   {job.workers, job.lanes, static_cast<std::uint32_t>(job.slots), job.credit,
                    group.address, group.port});
}

void SoftEngine::refuse(const Arrival& arrival, Counter counter, wire::Refusal cause) {
    ++counters_[counter];
    const packet::Header& header = arrival.packet.header;
    if (header.type() != wire::Type::Join) return;
    sender_.answer(header, arrival.peer, wire::Type::Refused,
                   {static_cast<std::uint32_t>(cause), wire::kVersion});
}

}  // namespace afflux::engine
