// Where an operation puts the datagrams that it wants sent.
#pragma once

#include "packet/frame.hpp"

namespace afflux::worker {

class Outlet {
  public:
    virtual ~Outlet() = default;

    // The octets stay as they are until the operation has an answer to them.
    virtual void send(packet::Octets datagram) = 0;
};

}  // namespace afflux::worker
