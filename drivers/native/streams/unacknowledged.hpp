// Data that a peer's host does not take, as TCP knows it.
#pragma once

#include <string>

namespace afflux::streams {

// Says since when the host at the other end of a socket has acknowledged nothing, though the kernel
// has repeated data a few times; empty if that is not so. Any thread.
std::string unacknowledged(int socket);

}  // namespace afflux::streams
