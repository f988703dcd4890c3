// Where an engine puts the packets that it sends.
#pragma once

#include <array>
#include <cstddef>

#include "packet/frame.hpp"

namespace afflux::engine {

// Words and blocks of a packet, in order, in as few pieces as they lie in memory.
struct Body {
    // The words, and eight runs of blocks if every other lane is present.
    std::array<packet::Octets, 9> parts{};
    std::size_t count = 0;

    void append(const void* data, std::size_t bytes) {
        parts[count++] = {static_cast<const std::uint8_t*>(data), bytes};
    }
};

class PacketSink {
  public:
    virtual ~PacketSink() = default;

    // Gives the body of the packets that follow. Unless `passing`, it stays where it is until the
    // slot's next round but one opens, which no honest worker causes before it has the packets.
    virtual void open(const Body& body, bool passing) = 0;

    // Sends a packet with that body.
    virtual void send(const packet::Endpoint& from, const packet::Endpoint& to,
                      const packet::Header& header) = 0;
};

}  // namespace afflux::engine
