// A buffer for the UDP payload of one packet, with header, look-ahead words and blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "contract/wire.hpp"
#include "packet/partial_dtype.hpp"

namespace afflux::packet {

constexpr std::size_t datagram_bytes(std::size_t blocks,
                                     std::size_t block_bytes = wire::kBlockBytes) {
    return wire::kUdpPayloadMin + blocks * block_bytes;
}

// The bytes of the longest datagram without partial sums, and of any; both have a seal.
constexpr std::size_t kLongestDatagram = datagram_bytes(wire::kLanesMax) + wire::kSealBytes;
constexpr std::size_t kLongestPartialSums =
    datagram_bytes(wire::kLanesMax, wire::kLongestBlockBytes) + wire::kSealBytes;

// Whether a datagram with so many blocks is so long: with a seal, which the host has checked with
// all the rest of the datagram, or without.
constexpr bool right_length(std::size_t bytes, std::size_t blocks,
                            std::size_t block_bytes = wire::kBlockBytes) {
    const std::size_t bare = datagram_bytes(blocks, block_bytes);
    return bytes == bare || bytes == bare + wire::kSealBytes;
}

class PacketBuffer {
  public:
    // One byte longer than the packet and its seal, so that a datagram that is too long is noticed.
    explicit PacketBuffer(std::size_t lanes = wire::kLanesMax,
                          std::size_t block_bytes = wire::kBlockBytes)
        : storage_(kPad + datagram_bytes(lanes, block_bytes) + wire::kSealBytes + 1, 0) {
        std::fill_n(words(), wire::kLanesMax, wire::kAbsent);
    }

    std::size_t bytes() const { return storage_.size() - kPad; }
    std::uint8_t* datagram() { return storage_.data() + kPad; }
    std::uint32_t* words() {
        return reinterpret_cast<std::uint32_t*>(datagram() + wire::kHeaderBytes);
    }
    std::int32_t* blocks() {
        return reinterpret_cast<std::int32_t*>(datagram() + wire::kUdpPayloadMin);
    }

  private:
    // Bytes before the header, so that words and blocks are aligned in memory.
    static constexpr std::size_t kPad = (8 - wire::kHeaderBytes % 8) % 8;

    std::vector<std::uint8_t> storage_;
};

}  // namespace afflux::packet
