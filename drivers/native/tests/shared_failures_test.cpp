// A group whose ranks disagree, give up, are late, leave, or were forked.
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <string>

#include "tests/shared_ranks.hpp"

namespace {

using namespace afflux;
using namespace afflux::tests;
using namespace std::chrono_literals;
using shared::Clock;
using shared::Disagreement;
using shared::Failed;
using shared::Group;

constexpr std::size_t kSmallCount = 100, kStagedCount = 200'000;

// Every rank raises, none has written, all know what all gave, and the group is of no more use.
void test_disagreement() {
    struct Variant {
        std::size_t count;
        arithmetic::Op op;
        std::uint64_t fingerprint;
    };
    const Variant variants[] = {{kSmallCount, arithmetic::Op::Sum, 1},
                                {kStagedCount, arithmetic::Op::Sum, 2},
                                {kSmallCount + 1, arithmetic::Op::Sum, 1},
                                {kSmallCount, arithmetic::Op::Max, 1}};
    for (const bool reachable : {false, true}) {
        for (const Variant& other : variants) {
            const auto segment = make_segment(3);
            const std::vector<std::uint64_t> want = {2, 2, other.fingerprint};
            in_threads(3, [&](int rank) {
                Group group(segment, rank);
                const Variant mine =
                    rank < 2 ? Variant{kStagedCount, arithmetic::Op::Sum, 2} : other;
                const std::size_t room = std::size_t{1} << 20;
                const auto memory = group.allocate(0, room);
                std::vector<float> ordinary(mine.count);
                float* const data =
                    reachable ? reinterpret_cast<float*>(memory->slice(rank)) : ordinary.data();
                // -0 would become +0.
                for (std::size_t i = 0; i < mine.count; ++i) data[i] = i % 2 ? 1.0f : -0.0f;
                begin_all_reduce(group, data, mine.count, arithmetic::Dtype::Float32, mine.op,
                                 mine.fingerprint);
                if (other.count == kStagedCount && other.fingerprint == 2) return finish(group);
                text_of<Disagreement>(group);
                CHECK(group.fingerprints() == want || other.fingerprint == 2);
                for (std::size_t i = 0; i < mine.count; ++i)
                    CHECK(i % 2 ? data[i] == 1.0f : std::signbit(data[i]));
                CHECK_THROWS(Failed, begin_all_reduce(group, data, 1, arithmetic::Dtype::Float32,
                                                      arithmetic::Op::Sum, 3));
                CHECK(!group.failure().empty());
            });
        }
    }
}

// A rank that gives up frees the others at once, with its text, wherever they are.
void test_giving_up() {
    for (const std::size_t count : {kSmallCount, kStagedCount}) {
        const auto segment = make_segment(3);
        std::atomic<int> waiting{0};
        in_threads(3, [&](int rank) {
            Group group(segment, rank);
            std::vector<float> tensor(count, 1.0f);
            begin_sum(group, tensor);
            finish(group);
            if (rank == 1) {
                while (waiting < 2) std::this_thread::yield();
                group.fail("enough");
                group.fail("again");
                CHECK(group.failure() == "rank 1 reports: enough");
                return;
            }
            begin_sum(group, tensor);
            ++waiting;
            const auto start = Clock::now();
            CHECK(text_of<Failed>(group) == "rank 1 reports: enough");
            CHECK(Clock::now() - start < 5s);
            CHECK_THROWS(Failed, begin_sum(group, tensor));
        });
    }
}

// Which ranks are waited for, a timeout that is not the end, and the result when the last comes.
void test_late_rank() {
    for (const std::size_t count : {std::size_t{0}, kSmallCount, kStagedCount}) {
        const auto segment = make_segment(3);
        std::atomic<int> timed_out{0};
        in_threads(3, [&](int rank) {
            Group group(segment, rank);
            std::vector<float> tensor(count, 1.0f);
            if (rank == 2)
                while (timed_out < 2) std::this_thread::yield();
            begin_sum(group, tensor);
            if (rank != 2) {
                const auto start = Clock::now();
                do {
                    CHECK(!group.advance(20ms));
                } while (group.missing() != std::vector<int>{2});
                CHECK(Clock::now() - start >= 20ms);
                CHECK(group.ended().empty());
                ++timed_out;
            }
            finish(group);
            for (const float element : tensor) CHECK(element == 3.0f);
        });
    }
}

// A rank that closes the group in time harms nobody; one that others wait for fails them.
void test_leaving() {
    const auto segment = make_segment(3);
    in_threads(3, [&](int rank) {
        std::vector<float> tensor(kStagedCount, 1.0f);
        {
            Group group(segment, rank);
            begin_sum(group, tensor);
            finish(group);
            CHECK(tensor[0] == 3.0f);
            if (rank == 0) return;
            begin_sum(group, tensor);
            CHECK(text_of<Failed>(group).find("rank 0 has ended") != std::string::npos);
            CHECK(group.ended()[0] == 0);
        }
    });
}

void test_misuse() {
    const auto segment = make_segment(1);
    Group group(segment, 0);
    CHECK_THROWS(std::invalid_argument, Group(segment, 0));
    CHECK_THROWS(std::invalid_argument, Group(segment, 1));
    CHECK_THROWS(std::logic_error, group.advance(0s));
    std::vector<float> tensor(10, 1.0f);
    CHECK_THROWS(std::invalid_argument,
                 begin_all_reduce(group, tensor.data(), 10, arithmetic::Dtype::Float16,
                                  static_cast<arithmetic::Op>(shared::Op::Product), 0));
    begin_sum(group, tensor);
    CHECK_THROWS(std::logic_error, begin_sum(group, tensor));
    finish(group);
    CHECK(tensor[9] == 1.0f);
    CHECK_THROWS(std::invalid_argument, group.allocate(0, 100));
    CHECK_THROWS(std::invalid_argument, make_segment(65));
    CHECK_THROWS(std::invalid_argument, make_segment(2, {1 << 20, 0}));
    CHECK_THROWS(std::invalid_argument, make_segment(2, {0, 1000}));
}

// A forked process can do no harm: not by calling, not by ending.
void test_fork() {
    const auto segment = make_segment(1);
    std::vector<float> tensor(10, 1.0f);
    auto group = std::make_unique<Group>(segment, 0);
    const pid_t child = fork();
    if (child == 0) {
        CHECK_THROWS(Failed, begin_sum(*group, tensor));
        CHECK_THROWS(Failed, group->allocate(0, 4096));
        group->fail("from the child");
        group = nullptr;
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(group->failure().empty());
    begin_sum(*group, tensor);
    finish(*group);
}

}  // namespace

int main() {
    test_fork();  // before there are threads
    test_misuse();
    test_disagreement();
    test_giving_up();
    test_late_rank();
    test_leaving();
}
