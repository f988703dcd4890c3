#include "datagrams/udp_socket.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <system_error>

namespace afflux::datagrams {
namespace {

[[noreturn]] void fail(const char* what) {
    throw std::system_error(errno, std::generic_category(), what);
}

void enlarge_one(int socket, int force, int plain, int bytes) {
    if (setsockopt(socket, SOL_SOCKET, force, &bytes, sizeof bytes) == 0) return;
    setsockopt(socket, SOL_SOCKET, plain, &bytes, sizeof bytes);
}

std::size_t option_of(int socket, int level, int option) {
    int value = 0;
    socklen_t length = sizeof value;
    if (getsockopt(socket, level, option, &value, &length) < 0) return 0;
    return static_cast<std::size_t>(value);
}

// Before a datagram: its headers, and what drivers leave free; behind it: struct skb_shared_info.
constexpr std::size_t kAround = 128 + 320;
// struct sk_buff.
constexpr std::size_t kDescription = 256 + 8;

}  // namespace

std::size_t charge(std::size_t datagram_bytes) {
    return std::bit_ceil(datagram_bytes + kAround) + kDescription;
}

std::size_t usable(std::size_t buffer_bytes) {
    return buffer_bytes / 4 * 3;
}

UdpSocket::UdpSocket(Family family)
    : number_(socket(family == Family::Ipv6 ? AF_INET6 : AF_INET,
                     SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)),
      family_(family) {
    if (number_ < 0) fail("no socket");
}

UdpSocket::UdpSocket(int number)
    : number_(number),
      family_(option_of(number, SOL_SOCKET, SO_DOMAIN) == AF_INET6 ? Family::Ipv6 : Family::Ipv4) {
    if (fcntl(number, F_SETFL, fcntl(number, F_GETFL) | O_NONBLOCK) < 0) {
        const int why = errno;
        close();
        throw std::system_error(why, std::generic_category(), "not a socket");
    }
}

void UdpSocket::close() {
    const int number = std::exchange(number_, -1);
    if (number >= 0) ::close(number);
}

void UdpSocket::bind(const Address& own) {
    if (::bind(number_, own.get(), own.bytes()) < 0) fail("bind");
}

void UdpSocket::connect(const Address& peer) {
    if (::connect(number_, peer.get(), peer.bytes()) < 0) fail("connect");
}

Address UdpSocket::own_address() const {
    Address own;
    socklen_t length = Address::kCapacity;
    if (getsockname(number_, own.put(), &length) < 0) fail("own address");
    return own;
}

void UdpSocket::set(int level, int option, const char* what, int value) {
    if (setsockopt(number_, level, option, &value, sizeof value) < 0) fail(what);
}

void UdpSocket::never_fragment() {
    constexpr const char* kWhat = "path MTU discovery";
    // Through a socket of IPv6 datagrams of IPv4 may pass, too (RFC 3493, section 3.7).
    set(IPPROTO_IP, IP_MTU_DISCOVER, kWhat, IP_PMTUDISC_DO);
    if (family_ == Family::Ipv6) {
        set(IPPROTO_IPV6, IPV6_MTU_DISCOVER, kWhat, IPV6_PMTUDISC_DO);
    }
}

bool UdpSocket::is_connected() const {
    Address peer;
    socklen_t length = Address::kCapacity;
    return getpeername(number_, peer.put(), &length) == 0;
}

std::size_t UdpSocket::enlarge(std::size_t bytes) {
    enlarge_one(number_, SO_RCVBUFFORCE, SO_RCVBUF, static_cast<int>(bytes));
    enlarge_one(number_, SO_SNDBUFFORCE, SO_SNDBUF, static_cast<int>(bytes));
    return option_of(number_, SOL_SOCKET, SO_RCVBUF);
}

std::size_t UdpSocket::mtu() const {
    return family_ == Family::Ipv6 ? option_of(number_, IPPROTO_IPV6, IPV6_MTU)
                                   : option_of(number_, IPPROTO_IP, IP_MTU);
}

bool UdpSocket::coalesce() {
    const int on = 1;
    return setsockopt(number_, IPPROTO_UDP, UDP_GRO, &on, sizeof on) == 0;
}

bool UdpSocket::can_segment() const {
    // Off, as each call says how long its datagrams are; a kernel that cannot does not know it.
    const int off = 0;
    return setsockopt(number_, IPPROTO_UDP, UDP_SEGMENT, &off, sizeof off) == 0;
}

}  // namespace afflux::datagrams
