// A lane that UCX carries: bytes in order, a window of them, and its end. Skipped without a
// library.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "tests/ucx_lanes.hpp"

namespace {

using namespace afflux;
using namespace afflux::tests;
using carriers::UcxLane;
using carriers::UcxStream;

// Two lanes with a stream to each other, and the sockets beside it.
class Pair {
  public:
    Pair() {
        CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets_) == 0);
        const auto library = carriers::UcxLibrary::open(ucx_library());
        for (int i = 0; i < 2; ++i) {
            const auto context = std::make_shared<const carriers::UcxContext>(library);
            const std::vector<int> sockets =
                i == 0 ? std::vector{-1, sockets_[0]} : std::vector{sockets_[1], -1};
            lanes_[i] = std::make_unique<UcxLane>(context, sockets);
        }
        for (int i = 0; i < 2; ++i) lanes_[i]->connect(i == 0 ? 1 : 0, lanes_[1 - i]->address());
    }
    ~Pair() {
        for (const int each : sockets_) ::close(each);
    }

    UcxLane& lane(int i) { return *lanes_[i]; }
    UcxStream& stream(int i) { return static_cast<UcxStream&>(*lanes_[i]->stream(i == 0 ? 1 : 0)); }
    void progress() {
        for (auto& each : lanes_)
            if (each) each->progress();
    }
    // Lane `i` ends without a word, as with its process.
    void kill(int i) {
        ::shutdown(sockets_[i], SHUT_RDWR);
        lanes_[i] = nullptr;
    }

  private:
    int sockets_[2];
    std::unique_ptr<UcxLane> lanes_[2];
};

constexpr int kSteps = 1'000'000;

std::vector<std::byte> pattern(std::size_t bytes) {
    std::vector<std::byte> all(bytes);
    for (std::size_t i = 0; i < bytes; ++i) all[i] = static_cast<std::byte>(i * 7 + (i >> 8));
    return all;
}

// Vectors of many lengths, of which each call sends and takes as many as it can.
void test_order() {
    Pair pair;
    const auto sent = pattern(20'000'000);
    std::vector<std::byte> got(sent.size());
    std::size_t out = 0, in = 0;
    iovec vectors[3];
    for (int step = 0; in < got.size(); ++step) {
        CHECK(step < kSteps);
        std::size_t at = out, count = 0;
        // The same at each call until one has sent them.
        const std::size_t first_bytes = out % 3 ? 2'000 : 16;
        for (const std::size_t length : {first_bytes, std::size_t{100'000}, std::size_t{999}}) {
            const std::size_t bytes = std::min(length, sent.size() - at);
            if (!bytes) break;
            vectors[count++] = {const_cast<std::byte*>(sent.data() + at), bytes};
            at += bytes;
        }
        if (count) {
            const ssize_t bytes = pair.stream(0).send(vectors, count);
            CHECK(bytes > 0 || errno == EAGAIN);
            if (bytes > 0) out += static_cast<std::size_t>(bytes);
        }
        pair.progress();
        const std::size_t first = std::min<std::size_t>(5'001, got.size() - in);
        const std::size_t second = std::min<std::size_t>(70'000, got.size() - in - first);
        const iovec places[] = {{got.data() + in, first}, {got.data() + in + first, second}};
        const ssize_t bytes = pair.stream(1).receive(places, 2);
        CHECK(bytes > 0 || (bytes < 0 && errno == EAGAIN));
        if (bytes > 0) in += static_cast<std::size_t>(bytes);
    }
    CHECK(got == sent);
}

// A peer that takes nothing gets no more than a window.
void test_window() {
    Pair pair;
    auto block = pattern(100'000);
    const iovec vector{block.data(), block.size()};
    auto last = UcxStream::Clock::now();
    while (UcxStream::Clock::now() - last < std::chrono::milliseconds(500)) {
        if (pair.stream(0).send(&vector, 1) > 0) last = UcxStream::Clock::now();
        pair.progress();
    }
    CHECK(pair.stream(0).sent() <= UcxStream::kWindow);
    CHECK(pair.stream(0).sent() > UcxStream::kWindow - block.size());
    std::uint64_t got = 0;
    std::vector<std::byte> taken(block.size());
    const iovec place{taken.data(), taken.size()};
    for (int step = 0; got < 3 * UcxStream::kWindow; ++step) {
        CHECK(step < kSteps);
        pair.stream(0).send(&vector, 1);
        pair.progress();
        const ssize_t bytes = pair.stream(1).receive(&place, 1);
        if (bytes > 0) got += static_cast<std::uint64_t>(bytes);
    }
}

// All that was sent is in front of the end.
void test_end() {
    Pair pair;
    const auto sent = pattern(300'000);
    const iovec vector{const_cast<std::byte*>(sent.data()), sent.size()};
    for (int step = 0; pair.stream(0).send(&vector, 1) < 0; ++step) {
        CHECK(step < kSteps && errno == EAGAIN);
        pair.progress();
    }
    pair.lane(0).end();
    pair.lane(1).readable(0);
    CHECK(pair.stream(1).connection_ended() && pair.stream(1).expects_more());
    std::vector<std::byte> got(sent.size() + 1);
    std::size_t in = 0;
    for (int step = 0;; ++step) {
        CHECK(step < kSteps);
        pair.progress();
        const iovec place{got.data() + in, got.size() - in};
        const ssize_t bytes = pair.stream(1).receive(&place, 1);
        if (bytes == 0) break;
        CHECK(bytes > 0 || errno == EAGAIN);
        if (bytes > 0) in += static_cast<std::size_t>(bytes);
    }
    CHECK(in == sent.size() && std::memcmp(got.data(), sent.data(), in) == 0);
}

// A peer that ends without a word is seen at once, and its lane closes soon.
void test_death() {
    Pair pair;
    auto block = pattern(100'000);
    const iovec vector{block.data(), block.size()};
    for (int i = 0; i < 10; ++i) {
        pair.stream(0).send(&vector, 1);
        pair.progress();
    }
    pair.kill(1);
    pair.lane(0).readable(1);
    std::byte one;
    const iovec place{&one, 1};
    ssize_t got;
    for (int step = 0; (got = pair.stream(0).receive(&place, 1)) < 0; ++step) {
        CHECK(step < kSteps && (errno == EAGAIN || errno == ECONNRESET));
        pair.progress();
    }
    CHECK(got == 0);
    const auto start = UcxStream::Clock::now();
    pair.lane(0).close();
    CHECK(UcxStream::Clock::now() - start < std::chrono::seconds(5));
}

}  // namespace

int main() {
    if (!has_ucx()) {
        std::puts("skipped: no library of UCX");
        return 0;
    }
    ::setenv("UCX_TLS", "tcp", 0);
    test_order();
    test_window();
    test_end();
    test_death();
    std::puts("UCX carries a lane");
}
