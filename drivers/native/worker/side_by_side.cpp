#include "worker/side_by_side.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "sums/exact_sums.hpp"
#include "sums/extreme.hpp"
#include "worker/fingerprint.hpp"

namespace afflux::worker {
namespace {

constexpr std::size_t divide_up(std::size_t dividend, std::size_t divisor) {
    return dividend / divisor + (dividend % divisor != 0);
}

void extreme_integers(bool greatest, std::size_t count, const std::vector<const void*>& ranks,
                      void* result) {
    auto* const out = static_cast<std::int32_t*>(result);
    for (std::size_t i = 0; i < count; ++i) {
        std::int32_t best = 0;
        for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
            std::int32_t own;
            std::memcpy(&own, static_cast<const std::uint8_t*>(ranks[rank]) + i * sizeof own,
                        sizeof own);
            best = rank == 0 ? own : greatest ? std::max(best, own) : std::min(best, own);
        }
        std::memcpy(out + i, &best, sizeof best);
    }
}

void extreme_numbers(const Tensor& like, std::size_t bytes, const std::vector<const void*>& ranks,
                     void* result) {
    const bool greatest = like.op == arithmetic::Op::Max;
    for (std::size_t at = 0; at < bytes; at += wire::kBlockBytes) {
        const std::size_t size = std::min(wire::kBlockBytes, bytes - at);
        std::array<std::uint8_t, wire::kBlockBytes> best{}, own{};
        std::memcpy(best.data(), static_cast<const std::uint8_t*>(ranks[0]) + at, size);
        // With itself the first one has its NaN made the one that comes back.
        for (const void* rank : ranks) {
            std::memcpy(own.data(), static_cast<const std::uint8_t*>(rank) + at, size);
            sums::extreme(like.dtype, greatest, best.data(), own.data());
        }
        std::memcpy(static_cast<std::uint8_t*>(result) + at, best.data(), size);
    }
}

std::vector<RankElements> own_ranks(const Tensor& tensor, unsigned rank, std::uint64_t others) {
    const auto of = [](const void* elements) { return static_cast<const std::uint8_t*>(elements); };
    std::vector<RankElements> ranks{{rank, of(tensor.elements)}};
    // The results do not depend on which of the others is in which of their places.
    for (const Other& other : tensor.others) {
        ranks.push_back({static_cast<std::size_t>(std::countr_zero(others)), of(other.elements),
                         other.exponents});
        others &= others - 1;
    }
    return ranks;
}

}  // namespace

void reduce_numbers(const Tensor& like, std::size_t count, const std::vector<const void*>& ranks,
                    void* result) {
    if (!arithmetic::is_sum(like.op)) {
        if (like.dtype == arithmetic::Dtype::Int32) {
            extreme_integers(like.op == arithmetic::Op::Max, count, ranks, result);
        } else {
            extreme_numbers(like, count * arithmetic::size_of(like.dtype), ranks, result);
        }
        return;
    }
    const bool average = like.op == arithmetic::Op::Avg;
    const int sources = static_cast<int>(ranks.size());
    const sums::Sum sum{like.dtype, average ? sums::average_scale(sources) : 0};
    sums::exact_sums(sum, count, sources, ranks.data(), result);
    if (average) sums::divide(like.dtype, sources, count, result);
}

std::size_t SideBySide::words_of(const Tensor& tensor) {
    return divide_up(tensor.count * arithmetic::size_of(tensor.dtype), sizeof(std::int32_t));
}

bool SideBySide::takes(const Tensor& tensor, std::size_t lanes) {
    const bool integers =
        tensor.dtype == arithmetic::Dtype::Int32 && tensor.op == arithmetic::Op::Sum;
    const std::size_t room = (lanes - 1) * wire::kBlockElements;
    return !integers && words_of(tensor) * static_cast<std::size_t>(tensor.ranks) <= room;
}

SideBySide::SideBySide(const Tensor& tensor, unsigned rank, std::uint64_t others)
    : tensor_(tensor),
      words_(words_of(tensor)),
      blocks_(divide_up(words_ * static_cast<std::size_t>(tensor.ranks), wire::kBlockElements)),
      own_(own_ranks(tensor, rank, others)) {}

wire::Present SideBySide::present() const {
    return static_cast<wire::Present>(((1U << blocks_) - 1) << 1);
}

void SideBySide::put(std::int32_t* blocks) const {
    std::fill_n(blocks, blocks_ * wire::kBlockElements, 0);
    if (tensor_.count == 0) return;
    for (const RankElements& each : own_) {
        std::memcpy(blocks + each.rank * words_, each.elements,
                    tensor_.count * arithmetic::size_of(tensor_.dtype));
    }
}

void SideBySide::take(const std::int32_t* blocks) const {
    if (tensor_.count == 0) return;
    std::vector<const void*> ranks;
    for (int rank = 0; rank < tensor_.ranks; ++rank) {
        ranks.push_back(blocks + static_cast<std::size_t>(rank) * words_);
    }
    reduce_numbers(tensor_, tensor_.count, ranks, tensor_.result);
}

Again::Again(const Tensor& tensor, unsigned rank, std::uint64_t others,
             const std::vector<std::size_t>& blocks)
    : tensor_(tensor),
      blocks_(blocks.begin(),
              blocks.begin() + static_cast<std::ptrdiff_t>(std::min(blocks.size(), kBlocksMost))),
      words_(blocks_.size() * static_cast<std::size_t>(tensor.ranks) * wire::kBlockElements),
      sums_(words_.size()) {
    const std::size_t size = arithmetic::size_of(tensor.dtype);
    for (const RankElements& each : own_ranks(tensor, rank, others)) {
        for (std::size_t i = 0; i < blocks_.size(); ++i) {
            if (each.absent(blocks_[i])) continue;
            const std::size_t at = i * static_cast<std::size_t>(tensor.ranks) + each.rank;
            std::memcpy(words_.data() + at * wire::kBlockElements,
                        each.elements + blocks_[i] * wire::kBlockBytes, length(blocks_[i]) * size);
        }
    }
}

std::size_t Again::length(std::size_t block) const {
    const std::size_t whole = tensor_.block_elements();
    return std::min(whole, tensor_.count - block * whole);
}

std::string Again::text() const {
    std::string list;
    for (const std::size_t block : blocks_) {
        if (!list.empty()) list += ',';
        list += std::to_string(block);
    }
    return ":again:int32:" + std::to_string(blocks_.size()) + "x" + std::to_string(crc32(list));
}

Tensor Again::on_wire() {
    return {
        .dtype = arithmetic::Dtype::Int32,
        .op = arithmetic::Op::Sum,
        .ranks = tensor_.ranks,
        .count = words_.size(),
        .elements = words_.data(),
        .result = sums_.data(),
    };
}

void Again::finish() const {
    const auto ranks = static_cast<std::size_t>(tensor_.ranks);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
        std::vector<const void*> each;
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            each.push_back(sums_.data() + (i * ranks + rank) * wire::kBlockElements);
        }
        auto* const result =
            static_cast<std::uint8_t*>(tensor_.result) + blocks_[i] * wire::kBlockBytes;
        reduce_numbers(tensor_, length(blocks_[i]), each, result);
        put_in(tensor_.mirror, blocks_[i], length(blocks_[i]) * arithmetic::size_of(tensor_.dtype),
               result);
    }
}

}  // namespace afflux::worker
