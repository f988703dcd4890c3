// The streams of a group whose ranks are threads: TCP over loopback, or UCX.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "streams/aggregator.hpp"
#include "streams/mesh.hpp"
#include "tests/collectives_ranks.hpp"
#include "tests/ucx_lanes.hpp"

namespace afflux::tests {

inline void make_ready(int fd, int buffer_bytes) {
    const int one = 1;
    CHECK(::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    if (buffer_bytes)
        CHECK(::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes) == 0);
    CHECK(::fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
}

// The sockets of each rank, by rank. Kernels with small buffers take a message in many parts.
inline std::vector<std::vector<int>> make_streams(int ranks, int buffer_bytes = 0) {
    const auto n = static_cast<std::size_t>(ranks);
    std::vector<std::vector<int>> all(n, std::vector<int>(n, -1));
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (buffer_bytes)
        CHECK(::setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes) ==
              0);
    CHECK(::bind(listener, any, size) == 0 && ::listen(listener, 1) == 0);
    CHECK(::getsockname(listener, any, &size) == 0);
    for (std::size_t a = 0; a < n; ++a)
        for (std::size_t b = 0; b < a; ++b) {
            all[a][b] = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            CHECK(::connect(all[a][b], any, size) == 0);
            all[b][a] = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
            CHECK(all[b][a] >= 0);
            make_ready(all[a][b], buffer_bytes);
            make_ready(all[b][a], buffer_bytes);
        }
    ::close(listener);
    return all;
}

// A rank's end. Each of the lanes has what `make_streams` has returned. Over UCX all ranks make
// theirs at once.
inline std::unique_ptr<streams::Mesh> make_mesh(
    const std::vector<std::vector<std::vector<int>>>& lanes, int rank, int threads = 1,
    bool aggregated = false) {
    std::vector<int> names;
    std::vector<std::vector<int>> own;
    for (std::size_t r = 0; r < lanes[0].size() - aggregated; ++r)
        names.push_back(static_cast<int>(r));
    for (const auto& lane : lanes) own.push_back(lane[static_cast<std::size_t>(rank)]);
    auto carriers = over_ucx() ? make_ucx_lanes(own) : streams::Mesh::Carriers{};
    return std::make_unique<streams::Mesh>(rank, own, names, threads, streams::Mesh::kOneHop,
                                           std::move(carriers));
}

// The aggregator of ranks whose lanes have one member more.
inline std::unique_ptr<streams::Aggregator> make_aggregator(
    const std::vector<std::vector<std::vector<int>>>& lanes, const std::vector<int>& sources) {
    std::vector<std::vector<int>> own;
    for (const auto& lane : lanes) {
        own.push_back(lane.back());
        own.back().pop_back();
    }
    std::vector<int> names;
    for (std::size_t r = 0; r < sources.size(); ++r) names.push_back(static_cast<int>(r));
    return std::make_unique<streams::Aggregator>(own, sources, names);
}

inline std::unique_ptr<streams::Mesh> make_mesh(const std::vector<std::vector<int>>& sockets,
                                                int rank) {
    return make_mesh(std::vector<std::vector<std::vector<int>>>(1, sockets), rank);
}

}  // namespace afflux::tests
