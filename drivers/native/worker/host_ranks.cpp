#include "worker/host_ranks.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "sums/block_scan.hpp"
#include "sums/exact_sums.hpp"
#include "sums/extreme.hpp"
#include "sums/sum_block.hpp"
#include "worker/blocks.hpp"

namespace afflux::worker {

void merge(arithmetic::Op op, std::span<const std::int32_t> more, std::int32_t* into) {
    switch (op) {
        case arithmetic::Op::Max:
            for (std::size_t i = 0; i < more.size(); ++i) into[i] = std::max(into[i], more[i]);
            return;
        case arithmetic::Op::Min:
            for (std::size_t i = 0; i < more.size(); ++i) into[i] = std::min(into[i], more[i]);
            return;
        default:
            // Modulo 2**32, as int32 sums are.
            for (std::size_t i = 0; i < more.size(); ++i)
                into[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(into[i]) +
                                                    static_cast<std::uint32_t>(more[i]));
    }
}

HostRanks::HostRanks(const Tensor& tensor)
    : tensor_(tensor), whole_(tensor.count / tensor.block_elements()) {
    if (whole_ == tensor.blocks()) return;
    const std::size_t bytes =
        tensor.count * arithmetic::size_of(tensor.dtype) - whole_ * wire::kBlockBytes;
    for (std::size_t other = 0; other < tensor.others.size(); ++other) {
        BlockElements& padded = padded_.emplace_back();
        const auto* const elements =
            static_cast<const std::uint8_t*>(tensor.others[other].elements);
        if (!absent(other, whole_)) {
            std::memcpy(padded.data(), elements + whole_ * wire::kBlockBytes, bytes);
        }
    }
}

bool HostRanks::absent(std::size_t other, std::size_t block) const {
    const std::uint8_t* exponents = tensor_.others[other].exponents;
    return exponents != nullptr && exponents[block] == 0;
}

const std::uint8_t* HostRanks::at(std::size_t other, std::size_t block) const {
    if (block >= whole_) return padded_[other].data();
    return static_cast<const std::uint8_t*>(tensor_.others[other].elements) +
           block * wire::kBlockBytes;
}

void HostRanks::scan(std::size_t first, std::size_t blocks, std::uint8_t* exponents) const {
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

void HostRanks::encode(std::size_t block, const void* own, int exponent, void* out) const {
    if (tensor_.has_exponents()) return sum(block, own, exponent, out);
    std::array<std::int32_t, wire::kBlockElements> all;
    std::memcpy(all.data(), own, sizeof all);
    const bool greatest = tensor_.op == arithmetic::Op::Max;
    // With itself the first one has its NaN made the one that comes back.
    if (tensor_.dtype != arithmetic::Dtype::Int32) {
        sums::extreme(tensor_.dtype, greatest, all.data(), own);
    }
    for (std::size_t other = 0; other < tensor_.others.size(); ++other) {
        if (absent(other, block)) continue;
        if (tensor_.dtype == arithmetic::Dtype::Int32) {
            std::array<std::int32_t, wire::kBlockElements> more;
            std::memcpy(more.data(), at(other, block), sizeof more);
            merge(tensor_.op, more, all.data());
        } else {
            sums::extreme(tensor_.dtype, greatest, all.data(), at(other, block));
        }
    }
    std::memcpy(out, all.data(), sizeof all);
}

std::uint64_t HostRanks::present(std::size_t block) const {
    std::uint64_t found = 0;
    for (std::size_t other = 0; other < tensor_.others.size(); ++other) {
        if (!absent(other, block)) found |= std::uint64_t{1} << other;
    }
    return found;
}

void HostRanks::reduce(int scale, void* own) const {
    auto* const bytes = static_cast<std::uint8_t*>(own);
    if (tensor_.has_exponents()) return round(scale, bytes);
    const std::size_t end = tensor_.count * arithmetic::size_of(tensor_.dtype);
    BlockElements block{};
    for (std::size_t at = 0; at < end; at += wire::kBlockBytes) {
        const std::size_t length = std::min(wire::kBlockBytes, end - at);
        std::memcpy(block.data(), bytes + at, length);
        encode(at / wire::kBlockBytes, block.data(), 0, block.data());
        std::memcpy(bytes + at, block.data(), length);
    }
}

// Takes as many adjacent blocks at once as the same ranks have.
void HostRanks::round(int scale, std::uint8_t* own) const {
    const std::size_t blocks = tensor_.blocks(), length = tensor_.block_elements();
    for (std::size_t first = 0, end; first < blocks; first = end) {
        const std::uint64_t there = present(first);
        for (end = first + 1; end < blocks && present(end) == there; ++end) {
        }
        const std::size_t offset = first * wire::kBlockBytes;
        std::vector<const void*> sources{own + offset};
        for (std::uint64_t rest = there; rest != 0; rest &= rest - 1) {
            const void* const elements = tensor_.others[std::countr_zero(rest)].elements;
            sources.push_back(static_cast<const std::uint8_t*>(elements) + offset);
        }
        const bool all_present = sources.size() == tensor_.others.size() + 1;
        const std::size_t count = std::min(end * length, tensor_.count) - first * length;
        sums::exact_sums({tensor_.dtype, scale, all_present}, count,
                         static_cast<int>(sources.size()), sources.data(), own + offset);
    }
}

void HostRanks::sum(std::size_t block, const void* own, int exponent, void* out) const {
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
