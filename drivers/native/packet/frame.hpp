// Frames with their Ethernet, IPv4, UDP and Afflux headers (protocol, section 2).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "contract/wire.hpp"

namespace afflux::packet {

// A host of IPv6. The zone is the number of the interface that leads to a link-local address.
struct Ipv6Host {
    std::array<std::uint8_t, 16> octets{};
    std::uint32_t zone = 0;

    bool operator==(const Ipv6Host&) const = default;
};

struct Endpoint {
    std::array<std::uint8_t, 6> mac{};
    std::uint32_t address = 0;  // of IPv4, first octet uppermost
    std::uint16_t port = 0;
    // Of a peer that a socket reaches by IPv6, whose `address` is 0. Frames are of IPv4 only.
    Ipv6Host ipv6{};

    bool operator==(const Endpoint&) const = default;

    // Whether it is the same socket's, whatever MAC address leads there.
    bool same_socket(const Endpoint& other) const {
        return address == other.address && port == other.port && ipv6 == other.ipv6;
    }
};

struct Octets {
    const std::uint8_t* data;
    std::size_t bytes;
};

struct Header {
    wire::VersionType version_type;
    wire::OpcodeDtype opcode_dtype;
    wire::Job job;
    wire::Worker worker;
    wire::Slot slot;
    wire::Present present;
    wire::Round round;
    wire::Key key;
    wire::Operation operation;

    // One of wire::Type if the type is known, else another number.
    wire::Type type() const { return static_cast<wire::Type>(version_type & 15); }
    std::uint8_t version() const { return version_type >> 4; }
    std::uint8_t opcode() const { return opcode_dtype >> 4; }
    std::uint8_t dtype() const { return opcode_dtype & 15; }
    std::size_t blocks() const { return static_cast<std::size_t>(std::popcount(present)); }
};

constexpr wire::VersionType version_type(wire::Type type) {
    return static_cast<wire::VersionType>(wire::kVersion << 4 | static_cast<int>(type));
}

// All headers of a frame. The look-ahead words follow.
using Head = std::array<std::uint8_t, wire::kLookaheadOffset>;

// The header of a JOIN.
Header join_header(wire::Job job, wire::Worker worker, wire::Key key);

Header load_header(const std::uint8_t* at);
void store_header(std::uint8_t* at, const Header& header);

// Writes the 42 octets before a UDP payload, with the IPv4 checksum but without a UDP checksum.
void store_front(std::uint8_t* at, const Endpoint& from, const Endpoint& to, std::size_t payload);

// Returns these with the Afflux header, for a packet that carries the blocks of header.present.
Head make_head(const Endpoint& from, const Endpoint& to, const Header& header);

// The seal after the last block in a frame of an aggregator: the complement that makes the UDP
// checksum right, which stands before the data that it covers and is therefore a constant.
using Seal = std::array<std::uint8_t, wire::kSealBytes>;

// Makes the head one of a frame with a seal, and returns the seal. `body_sum` is the sum of words
// and blocks (add_words).
Seal make_seal(Head& head, std::uint64_t body_sum);

}  // namespace afflux::packet
