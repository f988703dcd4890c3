#include "worker/udp_socket.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace afflux::worker {
namespace {

// A whole flight of every slot must fit, while the process waits for a processor.
constexpr int kBufferBytes = 8 << 20;

[[noreturn]] void fail(const char* what) {
    throw std::system_error(errno, std::generic_category(), what);
}

sockaddr_in to_sockaddr(const Address& address) {
    sockaddr_in found{};
    found.sin_family = AF_INET;
    found.sin_addr.s_addr = htonl(address.host);
    found.sin_port = htons(address.port);
    return found;
}

// Asks for as much as the system allows; it may give less.
void enlarge(int socket, int force, int plain) {
    if (setsockopt(socket, SOL_SOCKET, force, &kBufferBytes, sizeof kBufferBytes) == 0) return;
    setsockopt(socket, SOL_SOCKET, plain, &kBufferBytes, sizeof kBufferBytes);
}

}  // namespace

UdpSocket::UdpSocket() : number_(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    if (number_ < 0) fail("no socket");
    enlarge(number_, SO_RCVBUFFORCE, SO_RCVBUF);
    enlarge(number_, SO_SNDBUFFORCE, SO_SNDBUF);
}

UdpSocket::~UdpSocket() {
    close();
}

void UdpSocket::close() {
    const int number = std::exchange(number_, -1);
    if (number >= 0) ::close(number);
}

UdpSocket UdpSocket::connected(const Address& peer) {
    UdpSocket made;
    // The aggregator refuses fragments, so better an error here than silence there.
    made.set(IPPROTO_IP, IP_MTU_DISCOVER, "path MTU discovery", IP_PMTUDISC_DO);
    const sockaddr_in to = to_sockaddr(peer);
    if (connect(made.number_, reinterpret_cast<const sockaddr*>(&to), sizeof to) < 0) {
        fail("connect");
    }
    return made;
}

UdpSocket UdpSocket::of_group(const Address& group, std::uint32_t interface) {
    UdpSocket made;
    // Each rank of the host has such a socket, and each gets every datagram.
    made.set(SOL_SOCKET, SO_REUSEADDR, "address reuse", 1);
    // Bound to the group's address: unicast datagrams to the port are not for the group.
    const sockaddr_in here = to_sockaddr(group);
    if (bind(made.number_, reinterpret_cast<const sockaddr*>(&here), sizeof here) < 0) fail("bind");
    ip_mreq membership{};
    membership.imr_multiaddr.s_addr = htonl(group.host);
    membership.imr_interface.s_addr = htonl(interface);
    if (setsockopt(made.number_, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof membership) <
        0) {
        fail("join");
    }
    return made;
}

Address UdpSocket::own_address() const {
    sockaddr_in own{};
    socklen_t length = sizeof own;
    if (getsockname(number_, reinterpret_cast<sockaddr*>(&own), &length) < 0) fail("own address");
    return {ntohl(own.sin_addr.s_addr), ntohs(own.sin_port)};
}

std::size_t UdpSocket::mtu() const {
    int bytes = 0;
    socklen_t length = sizeof bytes;
    if (getsockopt(number_, IPPROTO_IP, IP_MTU, &bytes, &length) < 0) return 0;
    return static_cast<std::size_t>(bytes);
}

void UdpSocket::set(int level, int option, const char* what, int value) {
    if (setsockopt(number_, level, option, &value, sizeof value) < 0) fail(what);
}

}  // namespace afflux::worker
