// Where a dialogue puts the datagrams that it wants sent.
#pragma once

#include "packet/frame.hpp"

namespace afflux::worker {

class PacketSink {
  public:
    virtual ~PacketSink() = default;

    // The octets stay as they are until the dialogue has an answer to them.
    virtual void send(packet::Octets datagram) = 0;

    // The same if the answer may come at any moment: an earlier copy may have arrived. They go out
    // before this returns.
    virtual void send_now(packet::Octets datagram) { send(datagram); }
};

}  // namespace afflux::worker
