// Where an exchange puts the datagrams that it wants sent.
#pragma once

#include "packet/frame.hpp"

namespace afflux::worker {

class PacketSink {
  public:
    virtual ~PacketSink() = default;

    // The octets stay as they are until the exchange has an answer to them.
    virtual void send(packet::Octets datagram) = 0;
};

}  // namespace afflux::worker
