// Lanes that UCX carries, for ranks that have streams: STREAMS_UCX names the library.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "carriers/ucx_lane.hpp"
#include "streams/mesh.hpp"
#include "tests/check.hpp"

namespace afflux::tests {

// Whether tests of all carriers are to use UCX.
inline bool over_ucx() {
    return std::getenv("STREAMS_UCX") != nullptr;
}

// The library: that which is named, or the system's.
inline std::string ucx_library() {
    return over_ucx() ? std::getenv("STREAMS_UCX") : "libucp.so.0";
}

inline bool has_ucx() {
    try {
        carriers::UcxLibrary::open(ucx_library());
        return true;
    } catch (const std::runtime_error&) {
        return false;
    }
}

inline void write_whole(int fd, const void* from, std::size_t bytes) {
    CHECK(::write(fd, from, bytes) == static_cast<ssize_t>(bytes));
}

inline void read_whole(int fd, void* to, std::size_t bytes) {
    for (auto* at = static_cast<std::byte*>(to); bytes;) {
        pollfd one{fd, POLLIN, 0};
        CHECK(::poll(&one, 1, 20'000) == 1);
        const ssize_t got = ::read(fd, at, bytes);
        CHECK(got > 0);
        at += got;
        bytes -= static_cast<std::size_t>(got);
    }
}

// The sockets by lane and rank. All ranks call it at once, and tell their addresses by the sockets.
inline streams::Mesh::Carriers make_ucx_lanes(const std::vector<std::vector<int>>& sockets) {
    const auto library = carriers::UcxLibrary::open(ucx_library());
    const auto context = std::make_shared<const carriers::UcxContext>(library);
    std::vector<std::unique_ptr<carriers::UcxLane>> lanes;
    for (const auto& lane : sockets) {
        lanes.push_back(std::make_unique<carriers::UcxLane>(context, lane));
        const std::vector<std::byte> address = lanes.back()->address();
        const std::uint64_t bytes = address.size();
        for (const int socket : lane) {
            if (socket < 0) continue;
            write_whole(socket, &bytes, sizeof bytes);
            write_whole(socket, address.data(), bytes);
        }
    }
    streams::Mesh::Carriers carriers;
    for (std::size_t l = 0; l < lanes.size(); ++l) {
        for (std::size_t r = 0; r < sockets[l].size(); ++r) {
            if (sockets[l][r] < 0) continue;
            std::uint64_t bytes;
            read_whole(sockets[l][r], &bytes, sizeof bytes);
            std::vector<std::byte> address(bytes);
            read_whole(sockets[l][r], address.data(), bytes);
            lanes[l]->connect(r, address);
        }
        carriers.push_back(std::move(lanes[l]));
    }
    return carriers;
}

}  // namespace afflux::tests
