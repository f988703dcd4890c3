// An aggregator of streams that is late, stopped or sent nonsense, and what becomes of it when its
// ranks disagree, are late or end.
#include <atomic>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>

#include "tests/streams_ranks.hpp"

namespace {

using namespace afflux;
using namespace afflux::tests;
using namespace std::chrono_literals;
using collectives::Disagreement;
using collectives::Failed;
using streams::Head;
using streams::Kind;
using streams::Signature;

constexpr int kRanks = 3;
constexpr std::size_t kCount = 2'000'000;  // not in one hop

using Lanes = std::vector<std::vector<std::vector<int>>>;

Lanes make_lanes(int buffer_bytes = 0) {
    Lanes lanes;
    for (int lane = 0; lane < 2; ++lane) lanes.push_back(make_streams(kRanks + 1, buffer_bytes));
    return lanes;
}

std::unique_ptr<streams::Mesh> make_rank(const Lanes& lanes, int rank) {
    return make_mesh(lanes, rank, 1, true);
}

std::unique_ptr<streams::Aggregator> make_aggregator_of(const Lanes& lanes) {
    return make_aggregator(lanes, std::vector<int>(kRanks, 1));
}

// Wherever the odd one is, all raise `Disagreement`, and none has a sum. Some of the calls do not
// reach the aggregator; it ends with its ranks.
void test_disagreement() {
    for (const std::size_t other : {std::size_t{10}, kCount - 1, kCount})
        for (int odd = 0; odd < kRanks; ++odd) {
            // The kernel has no room for contributions that the aggregator does not read.
            const Lanes lanes = make_lanes(8192);
            std::atomic<int> raised{0};
            in_threads(kRanks + 1, [&](int rank) {
                if (rank == kRanks) {
                    const std::string why = make_aggregator_of(lanes)->run();
                    CHECK(why.empty() || contains(why, "rank"));
                    return;
                }
                const auto group = make_rank(lanes, rank);
                std::vector<float> tensor(rank == odd ? other : kCount, -0.0f);
                begin_sum(*group, tensor, rank == odd);
                CHECK(contains(text_of<Disagreement>(*group), "call differs"));
                for (const float element : tensor) CHECK(std::signbit(element));
                ++raised;
                while (raised < kRanks) std::this_thread::yield();
            });
        }
}

// The late one is known, and when it comes the sum is right.
void test_lateness() {
    for (const bool aggregator_is_late : {false, true}) {
        const Lanes lanes = make_lanes();
        std::atomic<int> timed_out{0};
        const int late = aggregator_is_late ? kRanks : 1;
        in_threads(kRanks + 1, [&](int rank) {
            if (rank == late)
                while (timed_out < (aggregator_is_late ? kRanks : kRanks - 1))
                    std::this_thread::yield();
            if (rank == kRanks) {
                CHECK(make_aggregator_of(lanes)->run().empty());
                return;
            }
            const auto group = make_rank(lanes, rank);
            std::vector<float> tensor(kCount, 1.0f);
            begin_sum(*group, tensor);
            if (rank != late) {
                do CHECK(!group->advance(20ms));
                while (aggregator_is_late ? !group->waits_for_aggregator()
                                          : group->missing() != std::vector<int>{late});
                CHECK(group->missing().empty() == aggregator_is_late);
                CHECK(group->ended().empty());
                ++timed_out;
            }
            finish(*group);
            for (const float element : tensor) CHECK(element == kRanks);
        });
    }
}

// Before an operation, and with one in progress.
void test_stop() {
    for (const bool inside : {false, true}) {
        const Lanes lanes = make_lanes();
        const auto aggregator = make_aggregator_of(lanes);
        std::atomic<int> begun{0};
        std::atomic<bool> stopped{false};
        in_threads(kRanks + 2, [&](int rank) {
            if (rank == kRanks) {
                CHECK(aggregator->run().empty());
                stopped = true;
            } else if (rank > kRanks) {
                while (begun < (inside ? 1 : kRanks)) std::this_thread::yield();
                aggregator->stop();
            } else {
                const auto group = make_rank(lanes, rank);
                std::vector<float> tensor(kCount, 1.0f);
                if (!inside) {
                    begin_sum(*group, tensor);
                    finish(*group);
                    ++begun;
                    while (!stopped) std::this_thread::yield();
                } else if (rank == 0) {
                    // The others come when it is too late.
                    begin_sum(*group, tensor);
                    CHECK(!group->advance(20ms));
                    ++begun;
                    CHECK(!text_of<Failed>(*group).empty());
                    return;
                } else {
                    while (!stopped) std::this_thread::yield();
                }
                // Each hears it from the aggregator, or from another rank.
                begin_sum(*group, tensor);
                CHECK(!text_of<Failed>(*group).empty());
                CHECK_THROWS(Failed, begin_sum(*group, tensor));
            }
        });
    }
}

// A rank that ends is named to the others; the aggregator ends, too.
void test_rank_ends() {
    const Lanes lanes = make_lanes();
    in_threads(kRanks + 1, [&](int rank) {
        if (rank == kRanks) {
            CHECK(!make_aggregator_of(lanes)->run().empty());
            return;
        }
        const auto group = make_rank(lanes, rank);
        std::vector<float> tensor(kCount, 1.0f);
        begin_sum(*group, tensor);
        finish(*group);
        CHECK(tensor[0] == kRanks);
        if (rank == 2) return;
        begin_sum(*group, tensor);
        CHECK(contains(text_of<Failed>(*group), "rank"));
    });
}

void test_nonsense() {
    const auto bytes_of = [](const auto& value) {
        const auto* first = reinterpret_cast<const std::byte*>(&value);
        return Bytes(first, first + sizeof value);
    };
    const auto call = [&](collectives::Collective what, int dtype, int op, std::uint64_t count) {
        Bytes all = bytes_of(Head{sizeof(Signature), 1, 0, Kind::Call, 0, 0, 0});
        const Bytes rest =
            bytes_of(Signature{count, 0, 0, what, static_cast<collectives::Dtype>(dtype),
                               static_cast<collectives::Op>(op), 0, 0});
        all.insert(all.end(), rest.begin(), rest.end());
        return all;
    };
    const auto with = [&](Bytes first, const Head& head) {
        const Bytes rest = bytes_of(head);
        first.insert(first.end(), rest.begin(), rest.end());
        return first;
    };
    using enum collectives::Collective;
    const Bytes good = call(AllReduce, 1, 0, kCount);
    const std::pair<Bytes, const char*> cases[] = {
        {call(Barrier, 1, 0, 0), "no part in"},
        {call(AllReduce, 77, 0, kCount), "no part in"},
        {call(AllReduce, 1, 77, kCount), "no part in"},
        {call(AllReduce, 1, 0, ~std::uint64_t{0}), "no part in"},
        {call(AllReduce, 1, 4, kCount), "no reduction"},
        {bytes_of(Head{10, 1, 0, Kind::Call, 0, 0, 0}), "no valid call"},
        {bytes_of(Head{600, 1, 0, Kind::Failure, 0, 0, 0}), "no valid reason"},
        {with(good, {4000, 0, 0, Kind::Contribution, 0, 0, 0}), "operation that is over"},
        {with(good, {4000, 1, 1, Kind::Contribution, 0, 0, 0}), "does not come next"},
        {with(good, {4000, 1, 0, Kind::Result, 0, 0, 0}), "does not come next"},
        {with(good, {3999, 1, 0, Kind::Contribution, 0, 0, 0}), "another length"},
        {with(good, {sizeof(Signature), 1, 0, Kind::Call, 0, 0, 0}), "no valid call"},
        {with(good, {10, 1, 0, static_cast<Kind>(9), 0, 0, 0}), "no known kind"},
    };
    for (const auto& [sent, text] : cases) {
        const Lanes lanes(1, make_streams(kRanks + 1));
        const auto aggregator = make_aggregator_of(lanes);
        std::thread served([&, text = text] {
            const std::string why = aggregator->run();
            if (!contains(why, text)) std::fprintf(stderr, "%s: %s\n", text, why.c_str());
            CHECK(contains(why, text));
        });
        const int own = lanes[0][1][kRanks];
        CHECK(::write(own, sent.data(), sent.size()) == static_cast<ssize_t>(sent.size()));
        served.join();
        for (const auto& streams : lanes[0])
            for (const int each : streams)
                if (each >= 0 && &streams != &lanes[0].back()) ::close(each);
    }
}

// Ranks that contribute without taking results.
void test_greed() {
    const Lanes lanes(1, make_streams(kRanks + 1, 8192));
    const auto aggregator = make_aggregator_of(lanes);
    std::atomic<bool> over{false};
    in_threads(kRanks + 1, [&](int rank) {
        if (rank == kRanks) {
            CHECK(contains(aggregator->run(), "too far ahead of its results"));
            over = true;
            return;
        }
        constexpr std::size_t kPieces = 100;
        const int fd = lanes[0][static_cast<std::size_t>(rank)][kRanks];
        const auto write_all = [&](const auto& value) {
            const auto* at = reinterpret_cast<const std::byte*>(&value);
            for (std::size_t left = sizeof value; left && !over;) {
                const ssize_t sent = ::send(fd, at, left, MSG_NOSIGNAL);
                if (sent > 0) {
                    at += sent;
                    left -= static_cast<std::size_t>(sent);
                } else {
                    std::this_thread::sleep_for(1ms);
                }
            }
        };
        write_all(Head{sizeof(Signature), 1, 0, Kind::Call, 0, 0, 0});
        write_all(Signature{kPieces * streams::kPieceBytes / 4, 0, 0,
                            collectives::Collective::AllReduce, collectives::Dtype::Float32,
                            collectives::Op::Sum, 0, 0});
        const auto piece = std::make_unique<std::array<std::byte, streams::kPieceBytes>>();
        piece->fill(static_cast<std::byte>(1));
        for (std::uint32_t n = 0; n < kPieces; ++n) {
            write_all(Head{streams::kPieceBytes, 1, n, Kind::Contribution, 0, 0, 0});
            write_all(*piece);
        }
        while (!over) std::this_thread::yield();
        ::close(fd);
    });
    for (int rank = 0; rank < kRanks; ++rank)
        for (int other = 0; other < kRanks; ++other)
            if (rank != other) ::close(lanes[0][static_cast<std::size_t>(rank)][other]);
}

void test_misuse() {
    const std::vector<std::vector<int>> none;
    CHECK_THROWS(std::invalid_argument, streams::Aggregator(none, {1}, {0}));
    CHECK_THROWS(std::invalid_argument, streams::Aggregator({{-1}}, {0}, {0}));
    CHECK_THROWS(std::invalid_argument, streams::Aggregator({{-1}}, {65}, {0}));
    CHECK_THROWS(std::invalid_argument, streams::Aggregator({{-1}}, {1}, {0, 1}));
    CHECK_THROWS(std::invalid_argument, streams::Aggregator({{-1}}, {1, 1}, {0, 1}));
}

}  // namespace

int main() {
    test_misuse();
    test_disagreement();
    test_lateness();
    test_stop();
    test_rank_ends();
    test_nonsense();
    test_greed();
}
