#include "sums/extreme.hpp"

#include "sums/kernels/table.hpp"

namespace afflux::sums {

void extreme(Dtype dtype, bool greatest, void* own, const void* arriving) {
    kernels().extreme(dtype, greatest, own, arriving);
}

}  // namespace afflux::sums
