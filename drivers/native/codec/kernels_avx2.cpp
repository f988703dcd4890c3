// The kernels for avx2. CMakeLists.txt sets which instructions the compiler may use here.
#if defined(__x86_64__)

#include "codec/kernels/choose.hpp"

namespace afflux::codec {

extern const Kernels kAvx2Kernels = kernels_named("avx2");

}  // namespace afflux::codec

#endif
