// The plugin's settings: NCCL leaves no other door for them than the environment of the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "control/channel.hpp"
#include "nccl/size_table.hpp"

namespace afflux::nccl {

inline constexpr unsigned kStreamsMax = 8;

// Times are in seconds.
struct Settings {
    std::vector<control::Place> aggregators;  // those that share the columns
    bool over_streams = false;  // to each other, and to the aggregator if there is one
    std::optional<std::string> secret;
    std::vector<std::string> interfaces;  // names, addresses or networks; none: by the route
    std::string nccl_interfaces;          // as NCCL_SOCKET_IFNAME has them
    unsigned lanes = 0;                   // 0: as many as the MTU allows
    std::size_t slots = 32;
    unsigned jobs = 2;                         // of a communicator
    unsigned streams = 4;                      // of a connection of the Net part, at most
    std::optional<ByteRanges> chosen_bytes{};  // sizes of all-reduces that the tuner takes
    SizeTable sizes;                           // or else those that were measured
    int lease_s = 60;
    double connect_s = 10;
    double peer_s = 5;
    double close_s = 10;
    bool required = false;  // whether the end of the aggregator ends a communicator
    double loss = 0;        // for tests, as is its seed
    std::uint64_t seed = 0;
};

// Whether all-reduces have somewhere to go.
inline bool reduces(const Settings& settings) {
    return settings.over_streams || !settings.aggregators.empty();
}

// Reads the variables of docs/environment.md that the plugin knows. Throws std::invalid_argument,
// naming the variable, for a value that cannot be.
Settings read_environment();

}  // namespace afflux::nccl
