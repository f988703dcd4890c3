#include "arithmetic/instruction_set.hpp"

#include <atomic>
#include <stdexcept>

namespace afflux::arithmetic {

namespace {

// In ascending order; the first is what any processor of the architecture can run.
std::vector<std::string> find_available() {
    std::vector<std::string> found{"default"};
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("f16c");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vl");
    if (avx2) found.emplace_back("avx2");
    if (avx512) found.emplace_back("avx512");
#endif
    return found;
}

const std::vector<std::string>& available() {
    static const std::vector<std::string> found = find_available();
    return found;
}

std::atomic<std::size_t>& active() {
    static std::atomic<std::size_t> level{available().size() - 1};
    return level;
}

}  // namespace

std::size_t instruction_set_level() {
    return active().load(std::memory_order_relaxed);
}

std::vector<std::string> instruction_sets() {
    return available();
}

std::string instruction_set() {
    return available()[instruction_set_level()];
}

void use_instruction_set(const std::string& name) {
    for (std::size_t level = 0; level < available().size(); ++level) {
        if (name == available()[level]) return active().store(level);
    }
    throw std::invalid_argument("no such instruction set here: " + name);
}

}  // namespace afflux::arithmetic
