// Tells the kernel which of the sockets of one port gets a datagram: that of the thread whose slot
// it is for.
#pragma once

#include "datagrams/udp_socket.hpp"
#include "engine/core.hpp"

namespace afflux::aggregator {

// Steers by the jobs that the core knows of; `jobs` is how many it may have. The socket is one of
// several on its port (SO_REUSEPORT), which are numbered in the order in which they were bound.
// Returns whether the kernel does it. If not it chooses in its own way, and packets that come to
// the wrong thread are handed over.
bool steer(const datagrams::UdpSocket& socket, const engine::Core& core, unsigned jobs);

}  // namespace afflux::aggregator
