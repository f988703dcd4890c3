#include "codec/instruction_set.hpp"

#include <atomic>
#include <stdexcept>

#include "codec/kernels/table.hpp"

namespace afflux::codec {

namespace {

std::vector<const Kernels*> find_available() {
    std::vector<const Kernels*> found{&kDefaultKernels};
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("f16c");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vl");
    if (avx2) found.push_back(&kAvx2Kernels);
    if (avx512) found.push_back(&kAvx512Kernels);
#endif
    return found;
}

const std::vector<const Kernels*>& available() {
    static const std::vector<const Kernels*> found = find_available();
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

const Kernels& kernels() {
    return *available()[instruction_set_level()];
}

std::vector<std::string> instruction_sets() {
    std::vector<std::string> names;
    for (const Kernels* each : available()) names.emplace_back(each->name);
    return names;
}

std::string instruction_set() {
    return kernels().name;
}

void use_instruction_set(const std::string& name) {
    for (std::size_t level = 0; level < available().size(); ++level) {
        if (name == available()[level]->name) return active().store(level);
    }
    throw std::invalid_argument("no such instruction set here: " + name);
}

}  // namespace afflux::codec
