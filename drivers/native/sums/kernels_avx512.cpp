// The loops for avx512. CMakeLists.txt sets which instructions the compiler may use here.
#if defined(__x86_64__)

#include "sums/kernels/choose.hpp"

namespace afflux::sums {

extern const Kernels kAvx512Kernels = kKernels;

}  // namespace afflux::sums

#endif
