// A worker's calls: what they return, and that they take nothing that cannot be.
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/check.hpp"
#include "tests/worker_mirror.hpp"
#include "worker/c_api.hpp"
#include "worker/errors.hpp"
#include "worker/fingerprint.hpp"

using namespace afflux;

namespace {

constexpr std::int64_t kMinute = 60'000'000'000;

// One rank, whose aggregators send back what it gives.
struct Rank {
    explicit Rank(std::size_t aggregators) : mirrors(aggregators) {
        for (tests::Mirror& mirror : mirrors) {
            sessions.push_back(std::make_unique<worker::Session>(tests::mirrored_job(4, 8), 1.0));
            lines.push_back(
                std::make_unique<worker::Line>(mirror.address(), *sessions.back(), nullptr));
        }
        std::vector<worker::Line*> all_lines;
        std::vector<worker::Session*> all_sessions;
        for (std::size_t i = 0; i < aggregators; ++i) {
            all_lines.push_back(lines[i].get());
            all_sessions.push_back(sessions[i].get());
        }
        loop = std::make_unique<worker::UdpLoop>(all_lines);
        group = std::make_unique<worker::Calls>(*loop, all_lines, all_sessions);
        request.collective = AFFLUX_ALL_REDUCE;
        request.dtype = AFFLUX_FLOAT32;
        request.reduction = AFFLUX_SUM;
        request.outputs = &output;
        request.output_count = 1;
    }

    std::int32_t run() {
        const afflux_calls& calls = group->calls();
        return calls.run(calls.group, &request, kMinute, &outcome);
    }
    void take(std::vector<float>& tensor) {
        output = tensor.data();
        request.count = tensor.size();
        request.fingerprint = group->describe(":sum:float32:" + std::to_string(tensor.size()));
    }

    std::vector<tests::Mirror> mirrors;
    std::vector<std::unique_ptr<worker::Session>> sessions;
    std::vector<std::unique_ptr<worker::Line>> lines;
    std::unique_ptr<worker::UdpLoop> loop;
    std::unique_ptr<worker::Calls> group;
    void* output = nullptr;
    afflux_request request{};
    afflux_outcome outcome{};
};

void test_fingerprint_is_the_protocols() {
    // The example in section 9.
    CHECK(worker::fingerprint(0, ":sum:float32:300") == 0xD6B7'D516);
    CHECK(worker::fingerprint(10, "") == worker::fingerprint(1, "0"));
}

void test_tensors_of_all_sizes() {
    for (const std::size_t aggregators : {1, 3}) {
        Rank rank(aggregators);
        std::uint64_t done = 0;
        for (const std::size_t count : {1, 63, 64, 1000, 100'000, 5}) {
            std::vector<float> tensor(count);
            for (std::size_t i = 0; i < count; ++i) tensor[i] = static_cast<float>(i % 7);
            const std::vector<float> wanted = tensor;
            rank.take(tensor);
            CHECK(rank.run() == AFFLUX_OVER);
            CHECK(tensor == wanted);
            CHECK(rank.outcome.operation == ++done && rank.group->over() == done);
            CHECK(rank.group->number() == done - 1);
        }
    }
}

// The mirror sends a NaN of all ones back, which stands for a block that was not summed.
void test_blocks_that_are_not_summed_come_again() {
    constexpr std::size_t kElements = wire::kBlockElements;
    for (const std::size_t aggregators : {1, 3}) {
        Rank rank(aggregators);
        // More than one operation brings, and none.
        for (const std::size_t blocks : {1500, 1, 0}) {
            std::vector<std::uint32_t> bits(2000 * kElements - 5, 0x3F80'0000);
            for (std::size_t i = 0; i < blocks; ++i) bits[i * kElements] = 0xFFFF'FFFF;
            std::vector<float> tensor(bits.size());
            std::memcpy(tensor.data(), bits.data(), bits.size() * sizeof bits[0]);
            rank.take(tensor);
            const std::uint64_t before = rank.sessions[0]->number;
            CHECK(rank.run() == AFFLUX_OVER);
            const std::uint64_t pieces = (blocks + 1023) / 1024;
            CHECK(rank.sessions[0]->number == before + 1 + pieces);
            for (std::size_t i = 0; i < blocks; ++i) bits[i * kElements] = 0x7FC0'0000;
            CHECK(std::memcmp(tensor.data(), bits.data(), bits.size() * sizeof bits[0]) == 0);
        }
        CHECK(rank.group->over() == 3);
    }
}

void test_nothing_at_all_is_agreed_on() {
    Rank rank(2);
    rank.request.dtype = AFFLUX_INT32;
    rank.request.output_count = 0;
    rank.request.fingerprint = rank.group->describe(":sum:int32:0x17");
    CHECK(rank.run() == AFFLUX_OVER);
    CHECK(rank.group->parts().size() == 1);
}

void test_begun_then_advanced() {
    Rank rank(2);
    std::vector<float> tensor(5000, 2.5F);
    rank.take(tensor);
    const afflux_calls& calls = rank.group->calls();
    CHECK(calls.begin(calls.group, &rank.request, &rank.outcome) == AFFLUX_NOT_YET);
    CHECK(calls.in_progress(calls.group) == 1 && rank.outcome.operation == 1);
    CHECK(calls.begin(calls.group, &rank.request, &rank.outcome) == AFFLUX_INVALID);
    CHECK(std::string(rank.outcome.text).find("in progress") != std::string::npos);
    CHECK(calls.advance(calls.group, 2, 0, &rank.outcome) == AFFLUX_INVALID);
    CHECK(calls.advance(calls.group, 1, kMinute, &rank.outcome) == AFFLUX_OVER);
    CHECK(calls.in_progress(calls.group) == 0);
    CHECK(calls.advance(calls.group, 1, 0, &rank.outcome) == AFFLUX_OVER);
    CHECK(rank.group->over() == 1);
}

void test_what_cannot_be_is_refused() {
    Rank rank(1);
    std::vector<float> tensor(100, 1.0F);
    rank.take(tensor);
    const afflux_request good = rank.request;
    const auto refused = [&](auto change) {
        rank.request = good;
        change(rank.request);
        return rank.run() == AFFLUX_INVALID;
    };
    CHECK(refused([](afflux_request& request) { request.collective = AFFLUX_BROADCAST; }));
    CHECK(refused([](afflux_request& request) { request.dtype = AFFLUX_INT64; }));
    CHECK(refused([](afflux_request& request) { request.dtype = -1; }));
    CHECK(refused([](afflux_request& request) { request.reduction = AFFLUX_PRODUCT; }));
    CHECK(refused([](afflux_request& request) {
        request.dtype = AFFLUX_INT32;
        request.reduction = AFFLUX_AVG;
    }));
    CHECK(refused([](afflux_request& request) { request.output_count = 0; }));
    CHECK(refused([](afflux_request& request) { request.input_count = 1; }));
    CHECK(refused([](afflux_request& request) { request.fingerprint = 77; }));
    CHECK(refused([](afflux_request& request) { request.count = std::uint64_t{1} << 40; }));
    // Nothing has happened: the next one is the first.
    rank.request = good;
    CHECK(rank.run() == AFFLUX_OVER && rank.group->number() == 0);
}

void test_a_closed_worker_takes_nothing() {
    Rank rank(1);
    std::vector<float> tensor(100, 1.0F);
    rank.take(tensor);
    rank.group->close();
    CHECK(rank.run() == AFFLUX_FAILED);
    CHECK(std::string(rank.outcome.text).find("closed") != std::string::npos);
}

// A call that has begun and is not over has no result.
void test_closing_does_not_end_what_has_begun() {
    Rank rank(1);
    std::vector<float> tensor(5000, 2.5F);
    rank.take(tensor);
    const afflux_calls& calls = rank.group->calls();
    CHECK(calls.begin(calls.group, &rank.request, &rank.outcome) == AFFLUX_NOT_YET);
    rank.group->close();
    CHECK(calls.advance(calls.group, 1, kMinute, &rank.outcome) == AFFLUX_FAILED);
}

// The thread sanitizer sees it, if anything is shared without care.
void test_another_thread_describes_meanwhile() {
    Rank rank(1);
    std::vector<float> tensor(1000, 2.5F);
    rank.take(tensor);
    std::thread other([&] {
        for (int i = 0; i < 1000; ++i) rank.group->describe(":sum:int32:" + std::to_string(i));
    });
    for (int i = 0; i < 20; ++i) CHECK(rank.run() == AFFLUX_OVER);
    other.join();
}

}  // namespace

int main() {
    test_fingerprint_is_the_protocols();
    test_tensors_of_all_sizes();
    test_blocks_that_are_not_summed_come_again();
    test_nothing_at_all_is_agreed_on();
    test_begun_then_advanced();
    test_what_cannot_be_is_refused();
    test_a_closed_worker_takes_nothing();
    test_closing_does_not_end_what_has_begun();
    test_another_thread_describes_meanwhile();
}
