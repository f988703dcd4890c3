// The files that this process may have open, of which each stream of a connection is one.
//
// Many systems allow 1024, and a job with many communicators has hundreds of connections. So the
// connections that a process makes later have fewer streams.
#pragma once

#include <cstdint>
#include <system_error>

namespace afflux::nccl {

// Streams of a connection that is made now: half of them when a quarter of all files is open, and
// one when half of them are.
std::uint32_t streams_now(std::uint32_t most);

// Why there is no socket, by errno; one that there are too many files says how many there may be.
std::system_error no_socket(int error);

}  // namespace afflux::nccl
