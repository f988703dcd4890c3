// Frames around the state machine: the checks of the headers before Afflux's (protocol, section
// 5.2).
#include "engine/soft_engine.hpp"

#include <algorithm>

#include "packet/octets.hpp"

namespace afflux::engine {
namespace {

constexpr std::uint8_t kUdp = 17;
// The only flag that may be set is "don't fragment".
constexpr std::uint16_t kFragmented = 0xBFFF;

// Not a group's MAC address, nor an IPv4 address of 0.0.0.0/8, 224.0.0.0/4 or 240.0.0.0/4.
bool is_of_host(const std::uint8_t* mac, std::uint8_t address_first_octet) {
    return (mac[0] & 1) == 0 && address_first_octet != 0 && address_first_octet < 224;
}

bool right_udp_checksum(const std::uint8_t* ip, std::size_t udp_bytes) {
    const std::uint8_t* udp = ip + wire::kIpv4Bytes;
    if (packet::load_big_16(udp + 6) == 0) return true;
    // Pseudo-header: both addresses, protocol, length.
    const std::uint64_t pseudo = packet::add_words(kUdp + udp_bytes, ip + 12, 8);
    return packet::fold(packet::add_words(pseudo, udp, udp_bytes)) == 0xFFFF;
}

}  // namespace

SoftEngine::SoftEngine(const Limits& limits, unsigned shares) : engine_(limits, shares) {
    for (unsigned i = 0; i < shares; ++i) engine_.share(i).core.send_to(&queue_);
}

void SoftEngine::receive(packet::Octets frame) {
    carry_out();
    {
        Engine::Share& first = engine_.share(0);
        const std::lock_guard alone(first.mutex);
        ++first.core.counters()[Counter::FramesIn];
        first.core.counters()[Counter::BytesIn] += frame.bytes;
    }
    const std::optional<Arrival> arrival = parse(frame);
    if (!arrival) return;
    Engine::Share& owner = owner_of(*arrival);
    const std::lock_guard alone(owner.mutex);
    owner.core.admit(*arrival);
}

SendQueue& SoftEngine::send() {
    carry_out();
    Engine::Share& first = engine_.share(0);
    const std::lock_guard alone(first.mutex);
    first.core.counters()[Counter::FramesOut] += queue_.frames().size();
    for (const SendQueue::Frame& frame : queue_.frames()) {
        first.core.counters()[Counter::BytesOut] += frame.bytes();
    }
    return queue_;
}

void SoftEngine::carry_out() {
    for (unsigned i = 0; i < engine_.shares(); ++i) {
        Engine::Share& share = engine_.share(i);
        const std::lock_guard alone(share.mutex);
        share.core.carry_out();
    }
}

Engine::Share& SoftEngine::owner_of(const Arrival& arrival) {
    Engine::Share& first = engine_.share(0);
    const std::lock_guard alone(first.mutex);
    return engine_.share(first.core.owner(arrival.packet.header, arrival.port, 0));
}

std::optional<Arrival> SoftEngine::parse(packet::Octets frame) {
    Engine::Share& first = engine_.share(0);
    const std::lock_guard alone(first.mutex);
    Core& core = first.core;
    const auto drop = [&core](Counter counter) -> std::optional<Arrival> {
        ++core.counters()[counter];
        return std::nullopt;
    };
    if (frame.bytes < wire::kLookaheadOffset) return drop(Counter::NotOurs);
    const packet::Endpoint& local = core.local();
    const std::uint8_t* ip = frame.data + wire::kEthernetBytes;
    const std::uint8_t* udp = ip + wire::kIpv4Bytes;
    if (!std::equal(local.mac.begin(), local.mac.end(), frame.data) ||
        packet::load_big_16(frame.data + 12) != 0x0800 || ip[0] >> 4 != 4 || ip[9] != kUdp ||
        packet::load_big_32(ip + 16) != local.address || local.address == 0) {
        return drop(Counter::NotOurs);
    }
    if (ip[0] != 0x45 || !is_of_host(frame.data + 6, ip[12]) ||
        (packet::load_big_16(ip + 6) & kFragmented) != 0 ||
        packet::fold(packet::add_words(0, ip, wire::kIpv4Bytes)) != 0xFFFF) {
        return drop(Counter::BadIp);
    }
    Arrival arrival{
        .packet = {packet::load_header(frame.data + wire::kAffluxOffset),
                   frame.data + wire::kLookaheadOffset},
        .peer = {.address = packet::load_big_32(ip + 12), .port = packet::load_big_16(udp)},
        .port = packet::load_big_16(udp + 2),
        .verified = packet::load_big_16(udp + 6) != 0,
    };
    std::copy_n(frame.data + 6, arrival.peer.mac.size(), arrival.peer.mac.begin());
    if (arrival.port != local.port && !core.is_parent_port(arrival.port)) {
        return drop(Counter::NotOurs);
    }
    const std::size_t total = packet::load_big_16(ip + 2);
    const std::size_t udp_bytes = packet::load_big_16(udp + 4);
    if (frame.bytes != wire::kEthernetBytes + total || total != wire::kIpv4Bytes + udp_bytes ||
        udp_bytes < wire::kUdpBytes) {
        return drop(Counter::BadLength);
    }
    if (!core.passes_length(arrival.packet.header, udp_bytes - wire::kUdpBytes)) {
        return std::nullopt;
    }
    if (!right_udp_checksum(ip, udp_bytes)) return drop(Counter::BadChecksum);
    return arrival;
}

}  // namespace afflux::engine
