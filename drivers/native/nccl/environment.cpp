#include "nccl/environment.hpp"

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "contract/wire.hpp"
#include "control/secret.hpp"
#include "nccl/measured_sizes.hpp"

namespace afflux::nccl {
namespace {

constexpr std::uint16_t kPort = 4700;
constexpr std::string_view kUdp = "udp://", kStreams = "streams://";

std::optional<std::string> variable(const char* name) {
    const char* const found = std::getenv(name);
    return found == nullptr || *found == '\0' ? std::nullopt : std::optional<std::string>(found);
}

[[noreturn]] void refuse(const char* name, const std::string& value, const std::string& why) {
    throw std::invalid_argument(std::string(name) + "=" + value + ": " + why);
}

template <typename Number>
void read_number(const char* name, Number& out, Number least, Number most) {
    const std::optional<std::string> text = variable(name);
    if (!text) return;
    const char* const end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(text->data(), end, out);
    if (error != std::errc() || stop != end || !(out >= least && out <= most)) {
        refuse(name, *text,
               "must be a number from " + std::to_string(least) + " to " + std::to_string(most));
    }
}

std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> parts;
    for (std::size_t first = 0; first <= text.size();) {
        const std::size_t end = std::min(text.find(',', first), text.size());
        parts.push_back(text.substr(first, end - first));
        first = end + 1;
    }
    return parts;
}

// Of host, host:port or [IPv6]:port.
control::Place place_of(const std::string& value, std::string_view authority) {
    constexpr const char* kName = "AFFLUX_AGGREGATOR";
    control::Place place{.host = {}, .port = kPort};
    std::string_view port;
    if (authority.substr(0, 1) == "[") {
        const std::size_t end = authority.find(']');
        if (end == authority.npos) refuse(kName, value, "a bracket is missing");
        place.host = authority.substr(1, end - 1);
        port = authority.substr(end + 1);
    } else {
        const std::size_t colon = std::min(authority.find(':'), authority.size());
        place.host = authority.substr(0, colon);
        port = authority.substr(colon);
    }
    if (!port.empty()) {
        const char* const end = port.data() + port.size();
        const auto [stop, error] = std::from_chars(port.data() + 1, end, place.port);
        if (port.front() != ':' || error != std::errc() || stop != end || place.port == 0) {
            refuse(kName, value, "the port must be from 1 to 65535");
        }
    }
    if (place.host.empty()) refuse(kName, value, "there is no host");
    return place;
}

std::vector<control::Place> aggregators_of(const std::string& value, std::string_view scheme) {
    std::vector<control::Place> places;
    for (const std::string& each : split(value)) {
        const std::string_view text = each;
        if (!text.starts_with(scheme) || text.find('?') != text.npos) {
            refuse("AFFLUX_AGGREGATOR", value,
                   "NCCL's plugin takes streams://[host[:port]], or udp://host[:port], of which "
                   "there may be several with commas between");
        }
        std::string_view authority = text.substr(scheme.size());
        if (!authority.empty() && authority.back() == '/') authority.remove_suffix(1);
        if (authority.empty() && scheme == kStreams && places.empty()) continue;
        const control::Place place = place_of(value, authority);
        for (const control::Place& other : places) {
            if (other == place) refuse("AFFLUX_AGGREGATOR", value, "an aggregator is named twice");
        }
        places.push_back(place);
    }
    return places;
}

ByteRanges ranges_of(const char* name, const std::string& value) {
    if (std::optional<ByteRanges> ranges = parse_ranges(value)) return *ranges;
    refuse(name, value, "must be ranges of bytes, as 0:1048576 or 0:1024,65536:, or none");
}

// The table of a file, or else that which ships with the plugin.
SizeTable table_of(const char* name, const std::optional<std::string>& path) {
    if (!path) return SizeTable::parse(kMeasuredSizes);
    std::ifstream file(*path);
    std::stringstream text;
    text << file.rdbuf();
    if (!file) refuse(name, *path, "there is no such file, or it cannot be read");
    try {
        return SizeTable::parse(text.str());
    } catch (const std::invalid_argument& error) {
        refuse(name, *path, error.what());
    }
}

}  // namespace

Settings read_environment() {
    constexpr double kLeast = 1e-3, kMost = 86400;
    Settings made;
    if (const auto value = variable("AFFLUX_AGGREGATOR")) {
        made.over_streams = value->starts_with(kStreams);
        made.aggregators = aggregators_of(*value, made.over_streams ? kStreams : kUdp);
        if (made.over_streams && made.aggregators.size() > 1) {
            refuse("AFFLUX_AGGREGATOR", *value, "streams:// takes one aggregator");
        }
    }
    if (const auto value = variable("AFFLUX_INTERFACE")) made.interfaces = split(*value);
    made.nccl_interfaces = variable("NCCL_SOCKET_IFNAME").value_or("");
    made.secret = control::find_secret(variable("AFFLUX_SECRET_FILE"), variable("AFFLUX_SECRET"));
    read_number<unsigned>("AFFLUX_LANES", made.lanes, 1, wire::kLanesMax);
    read_number<std::size_t>("AFFLUX_SLOTS", made.slots, 1, 512);
    read_number<unsigned>("AFFLUX_NCCL_JOBS", made.jobs, 1, 8);
    if (const auto value = variable("AFFLUX_NCCL_BYTES")) {
        made.chosen_bytes = ranges_of("AFFLUX_NCCL_BYTES", *value);
    }
    made.sizes = table_of("AFFLUX_NCCL_TABLE", variable("AFFLUX_NCCL_TABLE"));
    read_number<unsigned>("AFFLUX_NCCL_STREAMS", made.streams, 1, kStreamsMax);
    read_number("AFFLUX_LEASE", made.lease_s, 4, 3600);
    read_number("AFFLUX_CONNECT_TIMEOUT", made.connect_s, kLeast, kMost);
    read_number("AFFLUX_PEER_TIMEOUT", made.peer_s, kLeast, kMost);
    read_number("AFFLUX_CLOSE_TIMEOUT", made.close_s, kLeast, kMost);
    unsigned required = 0;
    read_number<unsigned>("AFFLUX_REQUIRE", required, 0, 1);
    made.required = required != 0;
    read_number("AFFLUX_TEST_LOSS", made.loss, 0.0, 0.99);
    read_number<std::uint64_t>("AFFLUX_TEST_SEED", made.seed, 0, (1ULL << 31) - 1);
    return made;
}

}  // namespace afflux::nccl
