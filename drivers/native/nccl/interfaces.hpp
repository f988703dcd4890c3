// The network interfaces that are NCCL's devices.
#pragma once

#include <netinet/in.h>

#include <string>
#include <vector>

#include "nccl/environment.hpp"

namespace afflux::nccl {

// An address of either family.
struct SocketAddress {
    sockaddr_in6 place{};  // the longer one
    socklen_t bytes = 0;

    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&place); }
    sockaddr* put() { return reinterpret_cast<sockaddr*>(&place); }
    int family() const { return place.sin6_family; }
    bool is_loopback() const;
    bool same_host(const SocketAddress& other) const;
    std::string text() const;
};

struct Interface {
    std::string name;
    SocketAddress address;
    std::string pci_path;  // empty if it is no PCI device
    int speed;             // Mbit/s
};

// Whether a host is this one by its name: localhost, or an address of the loopback interface.
bool is_loopback(const std::string& host);

// Those that the settings name; else that of the route to the first aggregator, or the first one
// that is up. The loopback interface comes last, unless the aggregator is named by it. Throws
// std::invalid_argument if there is none, control::Unreachable if the aggregator has no address.
std::vector<Interface> find_interfaces(const Settings& settings);

// The most lanes whose packets the route to an aggregator carries unfragmented; its name may take
// so many seconds. Throws std::system_error or std::invalid_argument if there is no route, or not
// one block fits, and control::Unreachable if it has no address.
unsigned lanes_to(const control::Place& place, double seconds);

}  // namespace afflux::nccl
