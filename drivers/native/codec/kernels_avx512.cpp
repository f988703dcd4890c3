// The kernels for avx512. CMakeLists.txt sets which instructions the compiler may use here.
#if defined(__x86_64__)

#include "codec/kernels/choose.hpp"

namespace afflux::codec {

extern const Kernels kAvx512Kernels = kernels_named("avx512");

}  // namespace afflux::codec

#endif
