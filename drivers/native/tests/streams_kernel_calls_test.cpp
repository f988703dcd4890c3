// A stream that has given or taken all that it could is left alone until somebody looks again, and
// nobody is woken for a part of a piece.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <vector>

#include "carriers/socket_lane.hpp"
#include "streams/incoming.hpp"
#include "streams/outgoing.hpp"
#include "tests/streams_ranks.hpp"

namespace {

using namespace afflux::streams;
using namespace afflux::tests;

constexpr Head head_of(std::uint32_t payload) {
    return {payload, 1, 0, Kind::Result, 0, 0, 0};
}

void send(int socket, const void* bytes, std::size_t count) {
    CHECK(::send(socket, bytes, count, 0) == static_cast<ssize_t>(count));
}

void test_incoming() {
    const auto ends = make_streams(2);
    afflux::carriers::SocketStream stream(ends[1][0]);
    Incoming in(stream);
    CHECK(!in.read());
    const Head head = head_of(100);
    send(ends[0][1], &head, sizeof head);
    // Over loopback they are there when `send` returns.
    CHECK(!in.read() && !in.has_head());
    in.look_again();
    CHECK(in.read() && in.has_head());
    std::array<std::byte, 100> payload{}, part;
    in.place(part.data(), part.size());
    in.look_again();
    CHECK(!in.read());
    send(ends[0][1], payload.data(), payload.size());
    CHECK(!in.read() && !in.part_is_here());
    in.look_again();
    CHECK(in.read() && in.part_is_here());
    ::close(ends[0][1]);
    in.next();
    in.look_again();
    CHECK(in.read() && in.ended());
    ::close(ends[1][0]);
}

void test_outgoing() {
    const auto ends = make_streams(2, 8192);
    afflux::carriers::SocketStream stream(ends[0][1]);
    Outgoing out(stream);
    std::vector<std::byte> large(kPieceBytes), taken(kPieceBytes);
    const iovec run{large.data(), large.size()};
    out.add(head_of(0), {}, {&run, 1});
    CHECK(out.flush() && !out.empty());
    while (::recv(ends[1][0], taken.data(), taken.size(), MSG_DONTWAIT) > 0) {
    }
    CHECK(!out.flush());
    for (int looks = 0; !out.empty(); ++looks) {
        CHECK(looks < 100'000);
        out.look_again();
        out.flush();
        while (::recv(ends[1][0], taken.data(), taken.size(), MSG_DONTWAIT) > 0) {
        }
    }
    ::close(ends[0][1]);
    ::close(ends[1][0]);
}

bool is_readable(int socket) {
    pollfd one{socket, POLLIN, 0};
    return ::poll(&one, 1, 0) == 1;
}

void test_expected_bytes() {
    const auto ends = make_streams(2);
    const int from = ends[0][1], to = ends[1][0];
    afflux::carriers::SocketLane lane({to, -1});
    std::vector<std::byte> piece(kPieceBytes);
    lane.expect(0, piece.size());
    send(from, piece.data(), piece.size() - 1);
    CHECK(!is_readable(to));
    send(from, piece.data(), 1);
    CHECK(is_readable(to));
    while (::recv(to, piece.data(), piece.size(), MSG_DONTWAIT) > 0) {
    }
    send(from, piece.data(), 1);
    CHECK(!is_readable(to));
    // A head, say, is taken at once.
    lane.expect(0, sizeof(Head));
    CHECK(is_readable(to));
    // The end, too, whatever is missing.
    lane.expect(0, piece.size());
    CHECK(!is_readable(to));
    ::close(from);
    CHECK(is_readable(to));
    ::close(to);
}

}  // namespace

int main() {
    test_incoming();
    test_outgoing();
    test_expected_bytes();
    std::puts("streams are asked once, and again after a look");
    return 0;
}
