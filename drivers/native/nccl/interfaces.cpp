#include "nccl/interfaces.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <system_error>

#include "contract/wire.hpp"
#include "control/line_socket.hpp"
#include "control/names.hpp"

namespace afflux::nccl {
namespace {

constexpr unsigned kAlive = IFF_UP | IFF_RUNNING;
constexpr int kUnknownSpeed = 10'000;
constexpr std::size_t kLongerHeader = 20;  // of IPv6, beside that of IPv4

const in_addr& ipv4(const SocketAddress& address) {
    return reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr;
}

SocketAddress copied(const sockaddr* from, socklen_t bytes) {
    SocketAddress made;
    made.bytes = std::min<socklen_t>(bytes, sizeof made.place);
    std::memcpy(made.put(), from, made.bytes);
    return made;
}

std::string pci_path(const std::string& name) {
    std::array<char, PATH_MAX> real;
    const std::string link = "/sys/class/net/" + name + "/device";
    return realpath(link.c_str(), real.data()) == nullptr ? "" : real.data();
}

int speed_of(const std::string& name) {
    int speed = 0;
    std::ifstream("/sys/class/net/" + name + "/speed") >> speed;
    return speed > 0 ? speed : kUnknownSpeed;
}

// All that are up and have a carrier, once for each address: those of IPv4 first, and none that is
// link-local.
std::vector<Interface> all_up() {
    ifaddrs* first = nullptr;
    if (getifaddrs(&first) != 0) {
        throw std::system_error(errno, std::generic_category(), "getifaddrs");
    }
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> kept(first, freeifaddrs);
    std::vector<Interface> found;
    for (const int family : {AF_INET, AF_INET6}) {
        for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
            if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != family ||
                (each->ifa_flags & kAlive) != kAlive) {
                continue;
            }
            const socklen_t bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
            const SocketAddress address = copied(each->ifa_addr, bytes);
            if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&address.place.sin6_addr)) continue;
            found.push_back({.name = each->ifa_name,
                             .address = address,
                             .pci_path = pci_path(each->ifa_name),
                             .speed = speed_of(each->ifa_name)});
        }
    }
    return found;
}

// Bridges of containers and virtual machines: other hosts often have the same address on theirs.
bool is_of_guests(const Interface& interface) {
    return interface.name.starts_with("docker") || interface.name.starts_with("virbr");
}

bool is_among(const std::vector<Interface>& chosen, const std::string& name) {
    return std::any_of(chosen.begin(), chosen.end(),
                       [&name](const Interface& each) { return each.name == name; });
}

// Whether an address is in a network such as 10.0.0.0/24, or is that address.
bool in_network(const SocketAddress& address, const std::string& network) {
    const std::size_t slash = std::min(network.find('/'), network.size());
    const std::string host = network.substr(0, slash);
    std::array<std::uint8_t, 16> wanted{}, own{};
    if (inet_pton(address.family(), host.c_str(), wanted.data()) != 1) return false;
    unsigned bits = address.family() == AF_INET ? 32 : 128;
    if (slash < network.size()) {
        const char* const end = network.data() + network.size();
        if (std::from_chars(network.data() + slash + 1, end, bits).ptr != end) return false;
    }
    if (address.family() == AF_INET) {
        std::memcpy(own.data(), &ipv4(address), 4);
    } else {
        std::memcpy(own.data(), &address.place.sin6_addr, 16);
    }
    for (unsigned bit = 0; bit < std::min(bits, 128U); ++bit) {
        if (((wanted[bit / 8] ^ own[bit / 8]) >> (7 - bit % 8) & 1) != 0) return false;
    }
    return true;
}

// As NCCL reads NCCL_SOCKET_IFNAME: prefixes with commas between, `=` for whole names, `^` for all
// others.
bool matches(const std::string& pattern, const std::string& name) {
    std::string rest = pattern;
    const bool others = rest.substr(0, 1) == "^";
    if (others) rest.erase(0, 1);
    const bool whole = rest.substr(0, 1) == "=";
    if (whole) rest.erase(0, 1);
    for (std::size_t first = 0; first <= rest.size();) {
        const std::size_t end = std::min(rest.find(',', first), rest.size());
        const std::string each = rest.substr(first, end - first);
        if (whole ? name == each : name.substr(0, each.size()) == each) return !others;
        first = end + 1;
    }
    return others;
}

struct Route {
    SocketAddress own;
    std::size_t mtu;
};

// Sends nothing: the kernel only chooses the route.
Route route_to(const control::Place& place, double seconds) {
    const control::Addresses found =
        control::resolve(place.host, place.port, SOCK_DGRAM, control::monotonic_now() + seconds);
    int error = 0;
    for (const int family : {AF_INET, AF_INET6}) {
        for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
            if (each->ai_family != family) continue;
            const int probe = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
            if (connect(probe, each->ai_addr, each->ai_addrlen) != 0) {
                error = errno;
                close(probe);
                continue;
            }
            Route route{};
            route.own.bytes = sizeof route.own.place;
            getsockname(probe, route.own.put(), &route.own.bytes);
            int mtu = 0;
            socklen_t bytes = sizeof mtu;
            getsockopt(probe, family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6,
                       family == AF_INET ? IP_MTU : IPV6_MTU, &mtu, &bytes);
            route.mtu = static_cast<std::size_t>(mtu);
            close(probe);
            return route;
        }
    }
    throw std::system_error(error, std::generic_category(), place.text());
}

// From an address, by a path that carries packets of so many bytes.
unsigned lanes_for(const SocketAddress& own, std::size_t mtu, const std::string& path) {
    if (own.is_loopback()) return wire::kLanesMax;
    const std::size_t header = own.family() == AF_INET ? 0 : kLongerHeader;
    const std::size_t around = wire::kPayloadOffset + wire::kSealBytes - wire::kEthernetBytes;
    if (mtu < header + around + wire::kBlockBytes) {
        throw std::invalid_argument("an MTU of " + std::to_string(mtu) + " bytes on " + path +
                                    " holds no packet with a block");
    }
    const std::size_t lanes = (mtu - header - around) / wire::kBlockBytes;
    return static_cast<unsigned>(std::min(lanes, wire::kLanesMax));
}

std::vector<Interface> named(const std::vector<Interface>& all, const Settings& settings) {
    std::vector<Interface> chosen;
    for (const std::string& wanted : settings.interfaces) {
        const auto found = std::find_if(all.begin(), all.end(), [&wanted](const Interface& each) {
            return each.name == wanted || in_network(each.address, wanted);
        });
        if (found == all.end()) {
            throw std::invalid_argument("AFFLUX_INTERFACE: no interface that is up is " + wanted);
        }
        chosen.push_back(*found);
    }
    if (!chosen.empty() || settings.nccl_interfaces.empty()) return chosen;
    for (const Interface& each : all) {
        if (matches(settings.nccl_interfaces, each.name) && !is_among(chosen, each.name)) {
            chosen.push_back(each);
        }
    }
    if (chosen.empty()) {
        throw std::invalid_argument("NCCL_SOCKET_IFNAME: no interface that is up fits " +
                                    settings.nccl_interfaces);
    }
    return chosen;
}

}  // namespace

bool SocketAddress::is_loopback() const {
    if (family() == AF_INET) return ntohl(ipv4(*this).s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&place.sin6_addr);
}

bool SocketAddress::same_host(const SocketAddress& other) const {
    if (family() != other.family()) return false;
    if (family() == AF_INET) return ipv4(*this).s_addr == ipv4(other).s_addr;
    return std::memcmp(&place.sin6_addr, &other.place.sin6_addr, sizeof place.sin6_addr) == 0;
}

bool is_loopback(const std::string& host) {
    in_addr ipv4{};
    in6_addr ipv6{};
    if (inet_pton(AF_INET, host.c_str(), &ipv4) == 1) return ntohl(ipv4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, host.c_str(), &ipv6) == 1) return IN6_IS_ADDR_LOOPBACK(&ipv6);
    return host == "localhost";
}

std::string SocketAddress::text() const {
    std::array<char, NI_MAXHOST> host{};
    const int failed =
        getnameinfo(get(), bytes, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
    return failed == 0 ? host.data() : "";
}

std::vector<Interface> find_interfaces(const Settings& settings) {
    const std::vector<Interface> all = all_up();
    std::vector<Interface> chosen = named(all, settings);
    if (!chosen.empty()) return chosen;
    if (!settings.aggregators.empty()) {
        // The name of this host often means an address of the loopback interface, by which other
        // nodes would not find this one. Such an address itself says that all are on this host.
        const control::Place& first = settings.aggregators.front();
        const SocketAddress own = route_to(first, settings.connect_s).own;
        for (const Interface& each : all) {
            if (own.is_loopback() && !is_loopback(first.host)) break;
            if (each.address.same_host(own)) return {each};
        }
    }
    const auto rank = [](const Interface& each) {
        return each.address.is_loopback() ? 2 : is_of_guests(each) ? 1 : 0;
    };
    const auto first = std::min_element(
        all.begin(), all.end(),
        [&rank](const Interface& one, const Interface& other) { return rank(one) < rank(other); });
    if (first != all.end()) return {*first};
    throw std::invalid_argument("this host has no interface that is up and has an address");
}

unsigned lanes_to(const control::Place& place, double seconds) {
    const Route route = route_to(place, seconds);
    return lanes_for(route.own, route.mtu, "the path to " + place.text());
}

}  // namespace afflux::nccl
