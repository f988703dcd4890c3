#include "worker/number_ranks.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "sums/block_scan.hpp"
#include "sums/extreme.hpp"
#include "sums/sum_block.hpp"
#include "worker/blocks.hpp"

namespace afflux::worker {

NumberRanks::NumberRanks(const Tensor& tensor)
    : tensor_(tensor), whole_(tensor.count / tensor.block_elements()) {
    if (whole_ == tensor.blocks()) return;
    const std::size_t bytes =
        tensor.count * codec::size_of(tensor.dtype) - whole_ * wire::kBlockBytes;
    for (std::size_t other = 0; other < tensor.others.size(); ++other) {
        BlockElements& padded = padded_.emplace_back();
        const auto* const elements =
            static_cast<const std::uint8_t*>(tensor.others[other].elements);
        if (!absent(other, whole_)) {
            std::memcpy(padded.data(), elements + whole_ * wire::kBlockBytes, bytes);
        }
    }
}

bool NumberRanks::absent(std::size_t other, std::size_t block) const {
    const std::uint8_t* exponents = tensor_.others[other].exponents;
    return exponents != nullptr && exponents[block] == 0;
}

const std::uint8_t* NumberRanks::at(std::size_t other, std::size_t block) const {
    if (block >= whole_) return padded_[other].data();
    return static_cast<const std::uint8_t*>(tensor_.others[other].elements) +
           block * wire::kBlockBytes;
}

void NumberRanks::scan(std::size_t first, std::size_t blocks, std::uint8_t* exponents) const {
    for (std::size_t other = 0; other < tensor_.others.size(); ++other) {
        const std::uint8_t* known = tensor_.others[other].exponents;
        for (std::size_t i = 0; i < blocks; ++i) {
            std::uint8_t theirs = known != nullptr ? known[first + i] : 0;
            if (known == nullptr) {
                sums::scan_blocks(tensor_.dtype, at(other, first + i), 1, &theirs);
            }
            exponents[i] = std::max(exponents[i], theirs);
        }
    }
}

void NumberRanks::encode(std::size_t block, const void* own, int exponent, void* out) const {
    if (tensor_.has_exponents()) return sum(block, own, exponent, out);
    std::array<std::int32_t, wire::kBlockElements> all;
    std::memcpy(all.data(), own, sizeof all);
    const bool greatest = tensor_.op == codec::Op::Max;
    // With itself the first one has its NaN made the one that comes back.
    if (tensor_.dtype != codec::Dtype::Int32) {
        sums::extreme(tensor_.dtype, greatest, all.data(), own);
    }
    for (std::size_t other = 0; other < tensor_.others.size(); ++other) {
        if (absent(other, block)) continue;
        if (tensor_.dtype == codec::Dtype::Int32) {
            std::array<std::int32_t, wire::kBlockElements> more;
            std::memcpy(more.data(), at(other, block), sizeof more);
            merge(tensor_.op, more, all.data());
        } else {
            sums::extreme(tensor_.dtype, greatest, all.data(), at(other, block));
        }
    }
    std::memcpy(out, all.data(), sizeof all);
}

void NumberRanks::sum(std::size_t block, const void* own, int exponent, void* out) const {
    const sums::Environment environment;
    sums::SumBlock sum;
    sum.open(environment, tensor_.dtype, own);
    bool all_present = true;
    for (std::size_t other = 0; other < tensor_.others.size(); ++other) {
        if (absent(other, block)) {
            all_present = false;
        } else {
            sum.add(environment, at(other, block));
        }
    }
    const sums::Partial to{tensor_.dtype, tensor_.partial_dtype()->bits, exponent};
    sum.partial(environment, to, all_present, out);
}

}  // namespace afflux::worker
