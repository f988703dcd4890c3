#include "nccl/open_files.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <string>

namespace afflux::nccl {
namespace {

std::size_t allowed() {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur;
}

// All, if there is no file left to count them with.
std::size_t opened() {
    std::error_code error;
    const std::filesystem::directory_iterator all("/proc/self/fd", error);
    if (error) return allowed();
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

}  // namespace

std::uint32_t streams_now(std::uint32_t most) {
    const std::size_t files = opened(), limit = allowed();
    if (files >= limit / 2) return 1;
    return files >= limit / 4 ? std::max(1U, most / 2) : most;
}

std::system_error no_socket(int error) {
    std::string what = "socket";
    if (error == EMFILE) {
        what = "this process has all " + std::to_string(allowed()) +
               " files open that it may have: raise `ulimit -n`, or set AFFLUX_NCCL_STREAMS=1";
    }
    return {error, std::generic_category(), what};
}

}  // namespace afflux::nccl
