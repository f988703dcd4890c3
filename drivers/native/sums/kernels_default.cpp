// The loops for any processor of the architecture, and which ones the program uses.
#include "arithmetic/instruction_set.hpp"
#include "sums/kernels/choose.hpp"

namespace afflux::sums {

extern const Kernels kDefaultKernels = kKernels;

const Kernels& kernels() {
#if defined(__x86_64__)
    static constexpr const Kernels* kAll[] = {&kDefaultKernels, &kAvx2Kernels, &kAvx512Kernels};
    return *kAll[arithmetic::instruction_set_level()];
#else
    return kDefaultKernels;
#endif
}

}  // namespace afflux::sums
