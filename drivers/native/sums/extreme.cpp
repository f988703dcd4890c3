#include "sums/extreme.hpp"

#include "sums/kernels/table.hpp"

namespace afflux::sums {

void extremes(Dtype dtype, bool greatest, std::size_t blocks, int sources,
              const void* const* elements, void* out) {
    kernels().extremes(dtype, greatest, blocks, sources, elements, out);
}

void extreme(Dtype dtype, bool greatest, void* own, const void* arriving) {
    const void* both[] = {own, arriving};
    kernels().extremes(dtype, greatest, 1, 2, both, own);
}

}  // namespace afflux::sums
