// The sockets of one connection of NCCL's point-to-point transfers, in one direction.
//
// A message is its length, 8 bytes on the first socket, and its bytes, of which each socket carries
// a part; a message of less than two parts goes over the first alone. Both ends know from the
// length who carries what. Nothing blocks: the tests of requests move bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "nccl/interfaces.hpp"
#include "nccl/net_abi.hpp"
#include "nccl/profiled_transfer.hpp"

namespace afflux::nccl {

// The handle that listen gives to connect, by way of NCCL.
struct NetHandle {
    std::array<char, 8> magic;
    std::array<std::uint8_t, 16> secret;
    SocketAddress listener;
    std::uint32_t streams;  // of a connection, at most
    void* attempt;          // of who connects: NCCL keeps the handle from call to call
};
static_assert(sizeof(NetHandle) <= abi::kHandleBytes);

// The first bytes on each socket.
struct Hello {
    std::array<std::uint8_t, 16> secret;
    std::uint64_t connection;  // random, the same on all sockets of a connection
    std::uint32_t stream;
    std::uint32_t streams;  // as many as the connection has, at most as the handle says
};

struct NetRequest {
    std::byte* data = nullptr;
    std::size_t bytes = 0;  // of a receive: room, then what has come
    std::size_t left = 0;   // parts under way
    bool length_known = false;
    bool used = false;
    class ByteStreams* owner = nullptr;
    ProfiledTransfer profiled{};
};

// Used by one thread. Failures are std::runtime_errors.
class ByteStreams {
  public:
    // As many as NCCL has in flight on a connection.
    static constexpr std::size_t kRequests = 32;

    // Takes over sockets that this process owns (own_files.hpp), in the order of the streams.
    ByteStreams(std::vector<int> sockets, bool sends);
    ~ByteStreams();
    ByteStreams(const ByteStreams&) = delete;
    ByteStreams& operator=(const ByteStreams&) = delete;

    // Null if too many are in flight. NCCL gives a parent for the profiler's event, which may be
    // null.
    NetRequest* post(void* data, std::size_t bytes, void* parent);

    // Moves bytes; returns whether the request is over, which is free then.
    bool test(NetRequest& request, std::size_t& bytes);

  private:
    // Bytes of a message that a socket is to move; on the first one the length goes before them.
    struct Part {
        NetRequest* request;
        std::byte* data;
        std::size_t left;
        std::uint64_t length = 0;
        std::size_t length_left = 0;  // bytes of it that are still to be sent
    };
    struct Stream {
        int socket;
        std::deque<Part> parts{};
    };

    void share_out(NetRequest& request);
    void move();
    bool move(Stream& stream);
    // Bytes that the kernel has taken; 0 if it has no room.
    static std::size_t send(int socket, const Part& part);
    // Bytes that it has given; 0 if it has nothing.
    static std::size_t receive(int socket, std::byte* data, std::size_t bytes);
    bool receive_length();

    const bool sends_;
    std::vector<Stream> streams_;
    std::array<NetRequest, kRequests> requests_;
    std::deque<NetRequest*> lengths_;  // requests whose length is still to come
    std::array<std::byte, sizeof(std::uint64_t)> length_{};
    std::size_t length_moved_ = 0;
};

}  // namespace afflux::nccl
