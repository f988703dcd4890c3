#include "streams/unacknowledged.hpp"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace afflux::streams {
namespace {

// The second repetition is 0.6 s or more after the first try; congestion alone rarely takes two.
constexpr int kRepetitions = 2;

}  // namespace

std::string unacknowledged(int socket) {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
    if (info.tcpi_unacked == 0 || info.tcpi_retransmits < kRepetitions) return {};
    const auto tenths = info.tcpi_last_ack_recv / 100;
    return "its host has acknowledged nothing for " + std::to_string(tenths / 10) + "." +
           std::to_string(tenths % 10) + " s, though data were repeated " +
           std::to_string(info.tcpi_retransmits) +
           " times: it or the way to it is gone, or the way carries no packets as large as the " +
           "interfaces' MTU (segments have " + std::to_string(info.tcpi_snd_mss) + " bytes)";
}

}  // namespace afflux::streams
