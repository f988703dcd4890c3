// Common parts of programs that time a shared-memory group: ranks as processes, and arguments.
#pragma once

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "shared/group.hpp"

namespace afflux::timing {

// Zeroed memory that this process and those that it forks have in common.
template <typename Results>
class Common {
  public:
    Common()
        : results_(static_cast<Results*>(mmap(nullptr, sizeof(Results), PROT_READ | PROT_WRITE,
                                              MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
        if (results_ == MAP_FAILED) std::abort();
    }
    ~Common() { munmap(results_, sizeof(Results)); }
    Common(const Common&) = delete;
    Common& operator=(const Common&) = delete;

    Results& operator*() const { return *results_; }
    Results* operator->() const { return results_; }

  private:
    Results* results_;
};

// Calls `body(segment, rank)` as each rank of a new group, in a process of its own. If one fails,
// so does the program.
template <typename Body>
void run_ranks(int ranks, shared::Sizes sizes, const Body& body) {
    const int fd = memfd_create("bench", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    shared::Segment::initialise(fd, ranks, sizes);
    std::vector<pid_t> children;
    for (int rank = 0; rank < ranks; ++rank) {
        const pid_t pid = fork();
        if (pid == 0) {
            body(std::make_shared<shared::Segment>(fd, ranks,
                                                   shared::Segment::Liveness::RecordLocks),
                 rank);
            _exit(0);
        }
        children.push_back(pid);
    }
    close(fd);
    for (const pid_t pid : children) {
        int status;
        waitpid(pid, &status, 0);
        if (status != 0) std::exit(1);
    }
}

// For who wants to know how the ranks waited.
inline void print_statistics(const shared::Group& group) {
    if (!std::getenv("SHARED_BENCH_STATISTICS")) return;
    const auto s = group.statistics();
    std::printf("# waits %lu sleeps %lu wakes %lu of %lu operations\n", s.waits, s.sleeps, s.wakes,
                s.operations);
    std::fflush(stdout);
}

// The numbers of an argument of the program: "2,4,8".
inline std::vector<double> numbers(const char* text) {
    std::vector<double> all;
    std::stringstream stream(text);
    for (std::string part; std::getline(stream, part, ',');) all.push_back(std::stod(part));
    return all;
}

}  // namespace afflux::timing
