// Whether a host refuses connections to a port, without waiting for it.
#pragma once

#include <string>

#include "control/channel.hpp"

namespace afflux::control {

class PortProbe {
  public:
    // `place` must live as long, and have an address for its host: names are not asked for.
    explicit PortProbe(const Place& place) : place_(place) {}
    ~PortProbe() { stop(); }
    PortProbe(const PortProbe&) = delete;
    PortProbe& operator=(const PortProbe&) = delete;

    // Begins to connect, unless that is under way.
    void begin();
    // Looks at what has come of it. Returns whether the host has refused; any other end is none.
    bool refused();
    // Gives the attempt up.
    void stop();

  private:
    const Place& place_;
    int number_ = -1;  // while it is under way, or over and not looked at
    int error_ = 0;
};

}  // namespace afflux::control
