// The kernels for any processor of the architecture.
#include "codec/kernels/choose.hpp"

namespace afflux::codec {

extern const Kernels kDefaultKernels = kernels_named("default");

}  // namespace afflux::codec
