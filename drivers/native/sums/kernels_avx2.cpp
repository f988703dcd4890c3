// The loops for avx2. CMakeLists.txt sets which instructions the compiler may use here.
#if defined(__x86_64__)

#include "sums/kernels/choose.hpp"

namespace afflux::sums {

extern const Kernels kAvx2Kernels = kKernels;

}  // namespace afflux::sums

#endif
