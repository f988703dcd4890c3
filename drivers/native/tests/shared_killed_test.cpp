// Ranks as processes, one of which is killed at a random moment:
//
//     shared_killed_test [first seed] [kills]
//
// Every other rank must raise within bounded time and name it, and none may ever see a wrong
// result.
#include <signal.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/shared_ranks.hpp"

namespace {

using namespace afflux;
using namespace afflux::tests;
using namespace std::chrono_literals;
using shared::Clock;

// How long the survivors may take, on a busy machine; with a processor to spare it is a tenth of a
// second.
constexpr auto kBound = 10s;
constexpr std::size_t kReachable = std::size_t{1} << 19;

// A rank process's report, in memory that the parent sees.
struct Report {
    std::atomic<std::uint64_t> operations;
    char text[256];
};

// Element i of rank r in operation k: such that every sum is exact, and differs from the last one.
float element(std::size_t i, int rank, std::uint64_t k) {
    return static_cast<float>((i * 7 + k * 13) % 61 + static_cast<std::size_t>(rank));
}

[[noreturn]] void run_rank(int fd, int rank, int ranks, std::uint64_t seed, Report& report) {
    auto segment =
        std::make_shared<shared::Segment>(fd, ranks, shared::Segment::Liveness::RecordLocks);
    shared::Group group(segment, rank);
    const auto memory = group.allocate(0, kReachable);
    Random random(seed);  // the same at all ranks
    const auto n = static_cast<std::size_t>(ranks), own = static_cast<std::size_t>(rank);
    std::vector<float> ordinary(n * kReachable / sizeof(float)), other(ordinary.size());
    for (std::uint64_t k = 0;; ++k) {
        constexpr std::size_t kCounts[] = {10, 1000, 8192, 8193, 40'000, 131'072};
        const std::size_t count = kCounts[random() % 6];
        const auto what = static_cast<shared::Collective>(random() % 4);
        const bool reachable = random() % 3 == 0 && what == shared::Collective::AllReduce;
        const bool gathers = what == shared::Collective::AllGather;
        const bool scatters = what == shared::Collective::ReduceScatter;
        float* const data =
            reachable ? reinterpret_cast<float*>(memory->slice(rank)) : ordinary.data();
        const std::size_t given = scatters ? n * count : count;
        float* const from = gathers || scatters ? other.data() : data;
        for (std::size_t i = 0; i < given; ++i) from[i] = element(i, rank, k);
        const void* const input = from;
        void* const output = data;
        shared::Request request;
        request.what = what;
        if (gathers || scatters) request.inputs = {&input, 1};
        request.outputs = {&output, 1};
        request.count = count;
        request.dtype = shared::Dtype::Float32;
        request.root = what == shared::Collective::Broadcast ? static_cast<int>(k % n) : 0;
        request.fingerprint = k;
        try {
            group.begin(request);
            finish(group);
        } catch (const shared::Failed& error) {
            std::snprintf(report.text, sizeof(report.text), "%s", error.what());
            _exit(0);
        }
        for (std::size_t i = 0; i < (gathers ? n * count : count); ++i) {
            float want = 0;
            if (gathers)
                want = element(i % count, static_cast<int>(i / count), k);
            else if (what == shared::Collective::Broadcast)
                want = element(i, request.root, k);
            else
                for (int r = 0; r < ranks; ++r)
                    want += element(scatters ? own * count + i : i, r, k);
            CHECK(data[i] == want);
        }
        report.operations.store(k + 1);
    }
}

void run_kill(std::uint64_t seed) {
    Random random(seed * 977);
    constexpr int kRanks[] = {2, 3, 5};
    const int ranks = kRanks[random() % 3];
    const std::size_t bytes = sizeof(Report) * static_cast<std::size_t>(ranks);
    auto* const reports = static_cast<Report*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    shared::Segment::initialise(fd, ranks, {0, 16384});
    std::vector<pid_t> children;
    for (int rank = 0; rank < ranks; ++rank) {
        children.push_back(fork());
        if (children.back() == 0) run_rank(fd, rank, ranks, seed, reports[rank]);
    }
    // The kernel releases the locks of a process whatever other descriptors the parent closes.
    close(fd);
    const auto victim = below(random, static_cast<std::size_t>(ranks));
    const auto limit = Clock::now() + 60s;
    const std::uint64_t enough = 1 + random() % 20;
    while (reports[victim].operations.load() < enough) {
        CHECK(Clock::now() < limit);
        std::this_thread::sleep_for(100us);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    kill(children[victim], SIGKILL);
    const auto start = Clock::now();
    for (std::size_t rank = 0; rank < children.size(); ++rank) {
        int status = 0;
        while (waitpid(children[rank], &status, WNOHANG) == 0) {
            if (Clock::now() - start > kBound) {
                std::fprintf(stderr, "seed %llu: rank %zu waits on\n",
                             static_cast<unsigned long long>(seed), rank);
                for (const pid_t child : children) kill(child, SIGKILL);
                CHECK(false);
            }
            std::this_thread::sleep_for(1ms);
        }
        if (rank == victim) continue;
        const std::string text = reports[rank].text;
        if (status != 0 ||
            text.find("rank " + std::to_string(victim) + " has ended") == text.npos) {
            std::fprintf(stderr, "seed %llu: rank %zu, status %d: '%s', not rank %zu\n",
                         static_cast<unsigned long long>(seed), rank, status, text.c_str(), victim);
            CHECK(false);
        }
    }
    munmap(reports, bytes);
}

}  // namespace

int main(int argc, char** argv) {
    const std::uint64_t first = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
    const std::uint64_t kills = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 15;
    for (std::uint64_t seed = first; seed < first + kills; ++seed) run_kill(seed);
    std::printf("%llu kills\n", static_cast<unsigned long long>(kills));
}
