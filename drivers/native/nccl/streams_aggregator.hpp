// The connecting end of connections with an aggregator of streams (docs/streams.md, Handshake).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "control/channel.hpp"
#include "control/line_socket.hpp"

namespace afflux::nccl {

// The key that ranks prove to an aggregator to know, in hexadecimal. It opens no control channel.
std::string streams_key(const std::optional<std::string>& secret);

// The place of a connection in a mesh that has an aggregator.
struct StreamsClaim {
    std::string mesh;  // 32 octets that no other mesh has
    std::uint32_t ranks;
    std::uint32_t rank;
};

// The connection. Tries again while nobody answers, and calls `between` between tries. Throws
// control::Error.
control::LineSocket connect_streams(const control::Place& place, const std::string& key,
                                    const StreamsClaim& claim, double deadline,
                                    const std::function<void()>& between);

}  // namespace afflux::nccl
