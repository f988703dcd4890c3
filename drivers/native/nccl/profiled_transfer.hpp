// The event of a transfer for NCCL's profilers: from the moment when its length is known until its
// request is over.
//
// NCCL's callback takes events of any kind, but profilers know those of its own transports only. So
// this is an event of its transport over sockets, version 1: a socket, a direction, and a length.
#pragma once

#include <cstddef>

#include "nccl/net_abi.hpp"

namespace afflux::nccl {

class ProfiledTransfer {
  public:
    // NCCL's callback, for all that begin later; null where nobody asks for events.
    static void set_callback(abi::Profiler callback);

    ProfiledTransfer() = default;
    // A null parent: there is no event.
    explicit ProfiledTransfer(void* parent) : parent_(parent) {}

    void begin(int socket, bool sends, std::size_t bytes);
    void end();

  private:
    void* parent_ = nullptr;
    void* event_ = nullptr;  // the profiler's; null where it does not want one
};

}  // namespace afflux::nccl
