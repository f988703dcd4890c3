#include "codec/instruction_set.hpp"

#include <atomic>
#include <stdexcept>

#include "codec/kernels/table.hpp"

namespace afflux::codec {

namespace {

std::vector<const Kernels*> available() {
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

std::atomic<const Kernels*>& active() {
    static std::atomic<const Kernels*> kernels{available().back()};
    return kernels;
}

}  // namespace

const Kernels& kernels() {
    return *active().load(std::memory_order_relaxed);
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
    for (const Kernels* each : available()) {
        if (name == each->name) return active().store(each);
    }
    throw std::invalid_argument("no such instruction set here: " + name);
}

}  // namespace afflux::codec
