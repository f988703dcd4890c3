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

bool SumBlock::open(const Environment&, const Partial& from, const void* block) {
    dtype_ = from.dtype;
    exact_ = kernels().add_partial(from.bits, from.unit(), block, true, sums_);
    return exact_;
}

bool SumBlock::add(const Environment&, const Partial& from, const void* block) {
    exact_ = exact_ && kernels().add_partial(from.bits, from.unit(), block, false, sums_);
    return exact_;
}

void SumBlock::partial(const Environment&, const Partial& to, bool all_present, void* out) const {
    // With a sum that is not a multiple of any unit.
    static constexpr double kTooFine[wire::kBlockBytes / 2] = {0x1p-900};
    kernels().partial(to.bits, to.unit(), all_present, exact_ ? sums_ : kTooFine, out);
}

void SumBlock::round(const Environment&, int scale, bool all_present, void* out) const {
    if (exact_) {
        kernels().round({dtype_, scale, all_present}, sums_, out);
    } else {
        std::memset(out, 0xFF, wire::kBlockBytes);
    }
}

int SumBlock::split(const Environment&, int most, bool all_present, void* const* terms) {
    return exact_ ? kernels().split(dtype_, most, all_present, sums_, terms) : 0;
}

}  // namespace afflux::sums
