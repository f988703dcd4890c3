// Ranks as processes whose streams UCX carries, one of which is killed or stopped short at a random
// moment:
//
//     streams_ucx_test [first seed] [groups]
//
// Every other rank must raise within bounded time and name a rank, none may see a wrong result, and
// nothing may be written to a tensor after that. Skipped without a library of UCX.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "tests/streams_ranks.hpp"

namespace {

using namespace afflux;
using namespace afflux::tests;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using collectives::Failed;
using Lanes = std::vector<std::vector<std::vector<int>>>;

constexpr int kRanks = 3, kVictim = 1;
constexpr auto kBound = 10s;

// A rank process's report, in memory that the parent sees.
struct Report {
    std::atomic<std::uint64_t> operations;
    std::atomic<std::int64_t> failed_at;  // of the steady clock
    char text[256];
};

// Such that every sum is exact, and differs from the last one.
float element(std::size_t i, int rank, std::uint64_t k) {
    return static_cast<float>((i * 7 + k * 13) % 61 + static_cast<std::size_t>(rank));
}

std::int64_t now() {
    return Clock::now().time_since_epoch().count();
}

[[noreturn]] void run_rank(const Lanes& lanes, int rank, std::uint64_t seed, Report& report) {
    for (const auto& lane : lanes)
        for (int r = 0; r < kRanks; ++r)
            for (const int fd : lane[static_cast<std::size_t>(r)])
                if (r != rank && fd >= 0) ::close(fd);
    auto group = make_mesh(lanes, rank, static_cast<int>(1 + seed % 2));
    Random random(seed);  // the same at all ranks
    std::vector<float> tensor;
    try {
        for (std::uint64_t k = 0;; ++k) {
            constexpr std::size_t kCounts[] = {10, 1000, 40'000, 1'000'000, 5'000'000};
            tensor.resize(kCounts[random() % 5]);
            for (std::size_t i = 0; i < tensor.size(); ++i) tensor[i] = element(i, rank, k);
            begin_sum(*group, tensor);
            while (!group->advance(1s)) {
            }
            for (std::size_t i = 0; i < tensor.size(); ++i) {
                float sum = 0;
                for (int r = 0; r < kRanks; ++r) sum += element(i, r, k);
                CHECK(tensor[i] == sum);
            }
            ++report.operations;
        }
    } catch (const Failed& error) {
        report.failed_at = now();
        std::strncpy(report.text, error.what(), sizeof report.text - 1);
    }
    // The others may still be sending.
    std::vector<float> after(tensor);
    std::this_thread::sleep_for(30ms);
    group = nullptr;
    CHECK(std::memcmp(after.data(), tensor.data(), after.size() * sizeof(float)) == 0);
    std::_Exit(0);
}

void run_group(std::uint64_t seed) {
    Random random(seed);
    Lanes lanes;
    for (std::size_t lane = 0, count = 1 + random() % 3; lane < count; ++lane)
        lanes.push_back(make_streams(kRanks));
    void* const memory = ::mmap(nullptr, sizeof(Report) * kRanks, PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    auto* const reports = new (memory) Report[kRanks]{};
    pid_t ranks[kRanks];
    for (int rank = 0; rank < kRanks; ++rank)
        if ((ranks[rank] = ::fork()) == 0) run_rank(lanes, rank, seed, reports[rank]);
    for (const auto& lane : lanes)
        for (const auto& sockets : lane)
            for (const int fd : sockets)
                if (fd >= 0) ::close(fd);
    const std::uint64_t first = 1 + random() % 8;
    const auto start = Clock::now();
    while (reports[0].operations < first) {
        CHECK(Clock::now() - start < 60s);
        std::this_thread::sleep_for(1ms);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    CHECK(::kill(ranks[kVictim], SIGKILL) == 0);
    const std::int64_t killed_at = now();
    for (int rank = 0; rank < kRanks; ++rank) {
        int status;
        CHECK(::waitpid(ranks[rank], &status, 0) == ranks[rank]);
        if (rank == kVictim) continue;
        if (status != 0) std::fprintf(stderr, "rank %d: status %#x\n", rank, status);
        CHECK(status == 0);
        const std::string text = reports[rank].text;
        if (!contains(text, "rank ")) std::fprintf(stderr, "rank %d: %s\n", rank, text.c_str());
        CHECK(contains(text, "rank 0: ") || contains(text, "rank 1: ") ||
              contains(text, "rank 2: "));
        CHECK(Clock::duration(reports[rank].failed_at - killed_at) < kBound);
    }
    // The first to notice names it.
    CHECK(contains(reports[0].text, "rank 1: ") || contains(reports[2].text, "rank 1: "));
    ::munmap(memory, sizeof(Report) * kRanks);
}

}  // namespace

int main(int argc, char** argv) {
    if (!has_ucx()) {
        std::puts("skipped: no library of UCX");
        return 0;
    }
    ::setenv("STREAMS_UCX", ucx_library().c_str(), 0);
    ::setenv("UCX_TLS", "tcp", 0);
    const std::uint64_t first = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
    const std::uint64_t groups = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 6;
    for (std::uint64_t seed = first; seed < first + groups; ++seed) run_group(seed);
    std::printf("%llu ranks killed\n", static_cast<unsigned long long>(groups));
}
