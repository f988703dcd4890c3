#include "sums/sum_block.hpp"

#include <cstring>

#include "sums/kernels/table.hpp"

namespace afflux::sums {

void SumBlock::open(const Environment&, Dtype dtype, const void* block) {
    dtype_ = dtype;
    exact_ = true;
    kernels().open(dtype, block, sums_);
}

bool SumBlock::add(const Environment&, const void* block) {
    // A block that is not summed needs no further additions.
    exact_ = exact_ && kernels().add(dtype_, block, sums_);
    return exact_;
}

void SumBlock::round(const Environment&, int scale, bool all_present, void* out) const {
    if (exact_) {
        kernels().round({dtype_, scale, all_present}, sums_, out);
    } else {
        std::memset(out, 0xFF, wire::kBlockBytes);
    }
}

}  // namespace afflux::sums
