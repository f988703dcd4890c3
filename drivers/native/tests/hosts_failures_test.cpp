// A group of hosts with several ranks: one disagrees, gives up, leaves, is late, or was forked.
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <string>

#include "hosts/group.hpp"
#include "tests/shared_ranks.hpp"
#include "tests/streams_ranks.hpp"

namespace {

using namespace afflux;
using namespace afflux::tests;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using collectives::Failed;
using hosts::Group;

// Two hosts with two ranks each, of which both are rails; and one more rank on the first host.
struct Hosts {
    Hosts() : places{{{0, 1, 2}, {3, 4}}, 0, 0} {
        segments = {make_segment(3), make_segment(2)};
        for (int i = 0; i < places.rails(); ++i) rails.push_back(make_streams(2));
    }

    std::unique_ptr<Group> group(int rank) const {
        hosts::Places own = places;
        own.host = rank < 3 ? 0 : 1;
        own.index = rank < 3 ? rank : rank - 3;
        auto local = std::make_shared<shared::Group>(segments[static_cast<std::size_t>(own.host)],
                                                     own.index);
        auto rail = own.index < own.rails()
                        ? make_mesh(rails[static_cast<std::size_t>(own.index)], own.host)
                        : nullptr;
        return std::make_unique<Group>(own, std::move(local), std::move(rail));
    }

    hosts::Places places;
    std::vector<std::shared_ptr<shared::Segment>> segments;
    std::vector<std::vector<std::vector<int>>> rails;
};

constexpr int kRanks = 5;
// A rail, a rank beside the rails, and the last rail of the other host.
constexpr int kOdd[] = {0, 2, 4};
// Of one small stage, and of several.
constexpr std::size_t kCounts[] = {100, 2'200'000};

// Wherever the odd one is, all raise soon, and none has a sum.
void test_disagreement() {
    for (const std::size_t count : kCounts)
        for (const int odd : kOdd) {
            const Hosts all;
            in_threads(kRanks, [&](int rank) {
                const auto group = all.group(rank);
                std::vector<float> tensor(count, 1.0f);
                begin_sum(*group, tensor, rank == odd);
                const auto start = Clock::now();
                CHECK(!text_of<Failed>(*group).empty());
                CHECK(Clock::now() - start < 10s);
                for (const float element : tensor) CHECK(element == 1.0f);
                CHECK_THROWS(Failed, begin_sum(*group, tensor));
            });
        }
}

// All hear of a rank that gives up; of one that leaves all that wait for it.
void test_giving_up() {
    for (const std::size_t count : kCounts)
        for (const int odd : kOdd)
            for (const bool leaves : {false, true}) {
                const Hosts all;
                std::atomic<int> waiting{0};
                in_threads(kRanks, [&](int rank) {
                    auto group = all.group(rank);
                    std::vector<float> tensor(count, 1.0f);
                    begin_sum(*group, tensor);
                    finish(*group);
                    CHECK(tensor[count - 1] == kRanks);
                    if (rank == odd) {
                        while (waiting < kRanks - 1) std::this_thread::yield();
                        if (leaves) {
                            group = nullptr;
                        } else {
                            group->fail("enough");
                            CHECK(group->failure().find("enough") != std::string::npos);
                        }
                        return;
                    }
                    begin_sum(*group, tensor);
                    ++waiting;
                    const auto start = Clock::now();
                    CHECK(!text_of<Failed>(*group).empty());
                    CHECK(Clock::now() - start < 10s);
                });
            }
}

// The rank that is waited for is known, and when it comes the sum is right.
void test_late_rank() {
    for (const std::size_t count : kCounts)
        for (const int late : kOdd) {
            const Hosts all;
            std::atomic<int> timed_out{0};
            in_threads(kRanks, [&](int rank) {
                const auto group = all.group(rank);
                std::vector<float> tensor(count, 1.0f);
                if (rank == late)
                    while (timed_out < kRanks - 1) std::this_thread::yield();
                begin_sum(*group, tensor);
                if (rank != late) {
                    // Another host knows no more than that its rails have not come.
                    const bool near = (rank < 3) == (late < 3);
                    do CHECK(!group->advance(20ms));
                    while (near && group->missing() != std::vector<int>{late});
                    ++timed_out;
                }
                finish(*group);
                for (const float element : tensor) CHECK(element == kRanks);
            });
        }
}

void test_fork() {
    hosts::Places places{{{0}}, 0, 0};
    Group group(places, nullptr, make_mesh(make_streams(1), 0));
    std::vector<float> tensor(10, 1.0f);
    const pid_t child = fork();
    if (child == 0) {
        CHECK_THROWS(Failed, begin_sum(group, tensor));
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    begin_sum(group, tensor);
    finish(group);
    CHECK(tensor[9] == 1.0f);
}

}  // namespace

int main() {
    test_fork();  // before there are threads
    test_disagreement();
    test_giving_up();
    test_late_rank();
}
