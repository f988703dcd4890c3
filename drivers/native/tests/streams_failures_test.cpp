// A group with streams whose ranks disagree, give up, are late, leave, are forked, or send what the
// protocol does not have.
#include <poll.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <string>

#include "tests/streams_ranks.hpp"

namespace {

using namespace afflux;
using namespace afflux::tests;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using collectives::Disagreement;
using collectives::Failed;
using collectives::Group;
using streams::Head;
using streams::Kind;
using streams::Signature;

constexpr std::size_t kSmallCount = 100, kLargeCount = 2'000'000;

// Every rank raises, none has written, all know what all gave, and the group is of no more use.
void test_disagreement() {
    struct Variant {
        std::size_t count;
        arithmetic::Op op;
        std::uint64_t fingerprint;
    };
    const Variant variants[] = {{kSmallCount, arithmetic::Op::Sum, 1},
                                {kLargeCount, arithmetic::Op::Sum, 1},
                                {kLargeCount + 1, arithmetic::Op::Sum, 2},
                                {kSmallCount, arithmetic::Op::Max, 2}};
    for (const int ranks : {2, 3, 4}) {
        for (const Variant& other : variants) {
            const auto sockets = make_streams(ranks);
            std::atomic<int> raised{0};
            in_threads(ranks, [&](int rank) {
                const auto group = make_mesh(sockets, rank);
                const Variant mine =
                    rank > 0 ? Variant{kLargeCount, arithmetic::Op::Sum, 2} : other;
                std::vector<float> tensor(mine.count);
                // -0 would become +0.
                for (std::size_t i = 0; i < mine.count; ++i) tensor[i] = i % 2 ? 1.0f : -0.0f;
                begin_all_reduce(*group, tensor.data(), mine.count, arithmetic::Dtype::Float32,
                                 mine.op, mine.fingerprint);
                CHECK(contains(text_of<Disagreement>(*group), "call differs"));
                const auto fingerprints = group->fingerprints();
                CHECK(fingerprints[0] == other.fingerprint && fingerprints[1] == 2);
                const std::vector<int> differing = group->differing();
                CHECK(rank ? differing == std::vector<int>{0}
                           : differing.size() == static_cast<std::size_t>(ranks) - 1);
                for (std::size_t i = 0; i < mine.count; ++i)
                    CHECK(i % 2 ? tensor[i] == 1.0f : std::signbit(tensor[i]));
                CHECK_THROWS(Failed, begin_sum(*group, tensor));
                CHECK(!group->failure().empty());
                // None closes before all have seen it, as ranks do that raise.
                ++raised;
                while (raised < ranks) std::this_thread::yield();
            });
        }
    }
}

// A rank that gives up frees the others at once, with its text, wherever they and it are.
void test_giving_up() {
    for (const std::size_t count : {kSmallCount, kLargeCount}) {
        for (const bool inside : {false, true}) {
            const auto sockets = make_streams(3);
            std::atomic<int> waiting{0};
            std::atomic<bool> given_up{false};
            in_threads(3, [&](int rank) {
                const auto group = make_mesh(sockets, rank);
                std::vector<float> tensor(count, 1.0f);
                begin_sum(*group, tensor);
                finish(*group);
                if (rank == 1) {
                    std::thread other([&] {
                        while (waiting < 2) std::this_thread::yield();
                        group->fail("enough");
                        group->fail("again");
                    });
                    // It waits for rank 2, which never begins, or is outside of the group.
                    if (inside) {
                        begin_sum(*group, tensor);
                        ++waiting;
                        CHECK(text_of<Failed>(*group) == "rank 1 reports: enough");
                    }
                    other.join();
                    CHECK(group->failure() == "rank 1 reports: enough");
                    given_up = true;
                    return;
                }
                if (rank == 2 && inside) {
                    while (!given_up) std::this_thread::yield();
                }
                begin_sum(*group, tensor);
                ++waiting;
                const auto start = Clock::now();
                const std::string text = text_of<Failed>(*group);
                // The text comes only where no piece is half way.
                CHECK(contains(text, "enough") || count == kLargeCount);
                CHECK(Clock::now() - start < 5s);
                CHECK_THROWS(Failed, begin_sum(*group, tensor));
            });
        }
    }
}

// Which ranks are waited for, a timeout that is not the end, and the result when the last comes.
void test_late_rank() {
    for (const std::size_t count : {std::size_t{0}, kSmallCount, kLargeCount}) {
        const auto sockets = make_streams(3);
        std::atomic<int> timed_out{0};
        in_threads(3, [&](int rank) {
            const auto group = make_mesh(sockets, rank);
            std::vector<float> tensor(count, 1.0f);
            if (rank == 2)
                while (timed_out < 2) std::this_thread::yield();
            begin_sum(*group, tensor);
            if (rank != 2) {
                const auto start = Clock::now();
                do CHECK(!group->advance(20ms));
                while (group->missing() != std::vector<int>{2});
                CHECK(Clock::now() - start >= 20ms);
                CHECK(group->ended().empty());
                ++timed_out;
            }
            finish(*group);
            for (const float element : tensor) CHECK(element == 3.0f);
        });
    }
}

// Contributions wait in the kernel when the owner has as many as it has room for.
void test_far_ahead() {
    const auto sockets = make_streams(3);
    std::atomic<int> timed_out{0};
    in_threads(3, [&](int rank) {
        const auto group = make_mesh(sockets, rank);
        std::vector<std::vector<float>> inputs;
        std::vector<const void*> given;
        for (int r = 0; r < 3; ++r) {
            auto& input = inputs.emplace_back(kLargeCount);
            for (std::size_t i = 0; i < kLargeCount; ++i)
                input[i] = static_cast<float>(i) + static_cast<float>(r);
            given.push_back(input.data());
        }
        std::vector<float> sum(kLargeCount);
        void* const out = sum.data();
        collectives::Request request;
        request.what = collectives::Collective::ReduceScatter;
        request.inputs = given;
        request.outputs = {&out, 1};
        request.count = kLargeCount;
        request.dtype = collectives::Dtype::Float32;
        if (rank == 2)
            while (timed_out < 2) std::this_thread::yield();
        group->begin(request);
        if (rank != 2) {
            for (int i = 0; i < 10; ++i) CHECK(!group->advance(20ms));
            ++timed_out;
        }
        finish(*group);
        for (std::size_t i = 0; i < kLargeCount; ++i)
            CHECK(sum[i] == 3 * (static_cast<float>(i) + static_cast<float>(rank)));
    });
}

// A rank that closes the group in time harms nobody; one that others wait for fails them.
void test_leaving() {
    const auto sockets = make_streams(3);
    in_threads(3, [&](int rank) {
        std::vector<float> tensor(kLargeCount, 1.0f);
        const auto group = make_mesh(sockets, rank);
        begin_sum(*group, tensor);
        finish(*group);
        CHECK(tensor[0] == 3.0f);
        if (rank == 0) return;
        begin_sum(*group, tensor);
        const std::string text = text_of<Failed>(*group);
        if (!contains(text, "rank 0: ")) std::fprintf(stderr, "%s\n", text.c_str());
        CHECK(contains(text, "rank 0: "));
        CHECK(!group->ended().empty() && group->ended()[0] == 0);
    });
}

void test_misuse() {
    const auto group = make_mesh(make_streams(1), 0);
    CHECK_THROWS(std::logic_error, group->advance(0s));
    std::vector<float> tensor(10, 1.0f);
    CHECK_THROWS(std::invalid_argument,
                 begin_all_reduce(*group, tensor.data(), 10, arithmetic::Dtype::Float16,
                                  static_cast<arithmetic::Op>(collectives::Op::Product), 0));
    begin_sum(*group, tensor);
    CHECK_THROWS(std::logic_error, begin_sum(*group, tensor));
    finish(*group);
    CHECK(tensor[9] == 1.0f);
}

// A forked process can do no harm: not by calling, not by ending, not by living on.
void test_fork() {
    const auto sockets = make_streams(2);
    std::vector<float> tensor(10, 1.0f);
    auto group = make_mesh(sockets, 0);
    int go[2];
    CHECK(pipe(go) == 0);
    const pid_t child = fork();
    if (child == 0) {
        ::close(go[1]);
        CHECK_THROWS(Failed, begin_sum(*group, tensor));
        group->fail("from the child");
        char none;
        CHECK(read(go[0], &none, 1) == 0);
        group = nullptr;
        _exit(0);
    }
    group = nullptr;
    // The peer sees the end though the child lives.
    pollfd peer{sockets[1][0], POLLIN, 0};
    char none;
    CHECK(::poll(&peer, 1, 5000) == 1 && ::read(peer.fd, &none, 1) == 0);
    ::close(peer.fd);
    ::close(go[0]);
    ::close(go[1]);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

Bytes bytes_of(const auto& value) {
    const auto* first = reinterpret_cast<const std::byte*>(&value);
    return Bytes(first, first + sizeof value);
}

void write_all(int fd, const Bytes& bytes) {
    CHECK(::write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
}

// A peer that fails in the next operation has done its part of this one. One that fails in none
// says so for the next one.
void test_failure_in_the_next_operation() {
    const auto sockets = make_streams(3);
    const auto group = make_mesh(sockets, 0);
    collectives::Request barrier;
    barrier.what = collectives::Collective::Barrier;
    const Bytes call = bytes_of(streams::signature_of(barrier));
    const auto send_call = [&](int from) {
        const int fd = sockets[static_cast<std::size_t>(from)][0];
        write_all(fd, bytes_of(Head{sizeof(Signature), 1, 0, Kind::Call, 0, 0, 0}));
        write_all(fd, call);
    };
    group->begin(barrier);
    send_call(1);
    const Bytes text(sizeof(streams::Ranks) + 6, static_cast<std::byte>('e'));
    write_all(sockets[1][0], bytes_of(Head{static_cast<std::uint32_t>(text.size()), 2, 0,
                                           Kind::Failure, 0, 0, 0}));
    write_all(sockets[1][0], text);
    ::shutdown(sockets[1][0], SHUT_WR);
    CHECK(!group->advance(20ms));
    send_call(2);
    finish(*group);
    group->begin(barrier);
    CHECK(text_of<Failed>(*group) == "eeeeee");
    // Rank 2 hears of it.
    Head head;
    Signature signature;
    do {
        CHECK(::read(sockets[2][0], &head, sizeof head) == sizeof head);
        if (head.kind == Kind::Call)
            CHECK(::read(sockets[2][0], &signature, sizeof signature) == sizeof signature);
    } while (head.kind == Kind::Call);
    CHECK(head.kind == Kind::Failure && head.operation == 2);
    for (const int rank : {1, 2}) ::close(sockets[static_cast<std::size_t>(rank)][0]);
}

void test_failure_between_operations() {
    const auto sockets = make_streams(2);
    const auto group = make_mesh(sockets, 0);
    group->fail("enough");
    Head head;
    CHECK(::read(sockets[1][0], &head, sizeof head) == sizeof head);
    CHECK(head.kind == Kind::Failure && head.operation == 1);
    ::close(sockets[1][0]);
}

// A peer that does not belong to the group, though it knew the secret.
void test_nonsense() {
    const auto call = [](std::size_t count) {
        return Signature{count,
                         0,
                         0,
                         collectives::Collective::AllReduce,
                         collectives::Dtype::Float32,
                         collectives::Op::Sum,
                         0,
                         0};
    };
    const auto joined = [](std::initializer_list<Bytes> all) {
        Bytes one;
        for (const Bytes& each : all) one.insert(one.end(), each.begin(), each.end());
        return one;
    };
    const std::size_t count = 1000;
    const Bytes good = joined(
        {bytes_of(Head{sizeof(Signature), 1, 0, Kind::Call, 0, 0, 0}), bytes_of(call(count))});
    const auto piece = [&](std::uint32_t payload, std::uint32_t number, Kind kind,
                           std::uint8_t bitmaps) {
        return joined(
            {good, bytes_of(Head{payload, 1, number, kind, bitmaps, 0, 0}), Bytes(payload)});
    };
    const std::pair<Bytes, const char*> cases[] = {
        {bytes_of(Head{10, 1, 0, Kind::Call, 0, 0, 0}), "no valid call"},
        {joined({good, good}), "no valid call"},
        {bytes_of(Head{0, 1, 0, static_cast<Kind>(9), 0, 0, 0}), "no known kind"},
        {bytes_of(Head{4000, 1, 0, Kind::Contribution, 0, 0, 0}), "in front of its call"},
        {bytes_of(Head{4000, 7, 0, Kind::Contribution, 0, 0, 0}), "operation that is over"},
        {bytes_of(Head{600, 1, 0, Kind::Failure, 0, 0, 0}), "no valid reason"},
        {piece(4000, 1, Kind::Contribution, 0), "does not come next"},
        {piece(4000, 0, Kind::Result, 0), "does not come next"},
        {piece(3999, 0, Kind::Contribution, 0), "another length"},
        {piece(1, 0, Kind::Contribution, 1), "without its bitmap"},
        {piece(10, 0, Kind::Contribution, 1), "another length"},
        {piece(100, 0, Kind::Contribution, 2), "more bitmaps"},
        {joined({good, bytes_of(Head{4000, 1, 0, Kind::Contribution, 1, 1, 0})}), "packed blocks"},
        {joined({good, bytes_of(Head{1u << 30, 1, 0, Kind::Contribution, 0, 0, 0})}),
         "too long a piece"},
    };
    for (const auto& [sent, text] : cases) {
        const auto sockets = make_streams(2);
        const auto group = make_mesh(sockets, 0);
        std::vector<float> tensor(count, 1.0f);
        write_all(sockets[1][0], sent);
        begin_sum(*group, tensor);
        const std::string why = text_of<Failed>(*group);
        if (!contains(why, text)) std::fprintf(stderr, "%s: %s\n", text, why.c_str());
        CHECK(contains(why, text) && contains(why, "rank 1"));
        ::close(sockets[1][0]);
    }
}

}  // namespace

int main() {
    if (!over_ucx()) test_fork();  // before there are threads
    test_misuse();
    test_disagreement();
    test_giving_up();
    test_late_rank();
    test_far_ahead();
    test_leaving();
    if (over_ucx()) return 0;  // the others write to sockets what the protocol does not have
    test_failure_in_the_next_operation();
    test_failure_between_operations();
    test_nonsense();
}
