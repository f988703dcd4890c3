#include "worker/host_ranks.hpp"

#include <algorithm>
#include <cstring>

#include "codec/classes.hpp"
#include "codec/exact.hpp"
#include "codec/quantise.hpp"
#include "codec/scan.hpp"
#include "codec/sortable.hpp"
#include "worker/blocks.hpp"

namespace afflux::worker {
namespace {

using codec::kBlock;

// Blocks that go through the codec at a time: what fits a first-level cache several times.
constexpr std::size_t kTogether = wire::kLanesMax;

}  // namespace

void merge(codec::Op op, std::span<const std::int32_t> more, std::int32_t* into) {
    switch (op) {
        case codec::Op::Max:
            for (std::size_t i = 0; i < more.size(); ++i) into[i] = std::max(into[i], more[i]);
            return;
        case codec::Op::Min:
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
    : dtype_(tensor.dtype),
      op_(tensor.op),
      count_(tensor.count),
      numbers_(tensor.ranks, tensor.dtype, tensor.op),
      floating_(tensor.has_exponents()),
      others_(tensor.others) {
    if (count_ % kBlock == 0) return;
    const std::size_t last = count_ / kBlock;
    for (const Other& other : others_) {
        BlockElements& padded = padded_.emplace_back();
        if (absent(other, last)) continue;
        std::memcpy(padded.data(), at(other.elements, last), length(last) * codec::size_of(dtype_));
    }
}

const std::uint8_t* HostRanks::at(const void* elements, std::size_t block) const {
    return static_cast<const std::uint8_t*>(elements) + block * kBlock * codec::size_of(dtype_);
}

std::size_t HostRanks::length(std::size_t block) const {
    return std::min(kBlock, count_ - block * kBlock);
}

void HostRanks::scan(std::size_t first, std::size_t blocks, std::uint8_t* exponents) const {
    std::array<std::uint8_t, kTogether> found;
    for (const Other& other : others_) {
        for (std::size_t done = 0; done < blocks; done += kTogether) {
            const std::size_t some = std::min(kTogether, blocks - done);
            const std::size_t left = count_ - (first + done) * kBlock;
            const std::uint8_t* theirs = found.data();
            if (other.exponents != nullptr) {
                theirs = other.exponents + first + done;
            } else {
                codec::scan(dtype_, at(other.elements, first + done), std::min(some * kBlock, left),
                            found.data());
            }
            std::uint8_t* const into = exponents + done;
            for (std::size_t i = 0; i < some; ++i) into[i] = std::max(into[i], theirs[i]);
        }
    }
}

std::uint8_t HostRanks::finite_exponent(std::size_t block, std::uint8_t own) const {
    for (const Other& other : others_) {
        if (absent(other, block)) continue;
        const void* elements = at(other.elements, block);
        own = std::max(own, codec::finite_exponent(dtype_, elements, length(block)));
    }
    return own;
}

void HostRanks::encode(std::size_t first, std::size_t blocks, const std::uint8_t* exponents,
                       std::int32_t* out) const {
    const bool short_end = length(first + blocks - 1) < kBlock;
    const std::size_t whole = blocks - static_cast<std::size_t>(short_end);
    for (std::size_t rank = 0; rank < others_.size(); ++rank) {
        encode_present(others_[rank], first, whole, exponents, out);
        if (short_end)
            encode_whole(padded_[rank].data(), 1, exponents + whole, out + whole * kBlock);
    }
}

// Whole blocks.
void HostRanks::encode_present(const Other& other, std::size_t first, std::size_t blocks,
                               const std::uint8_t* exponents, std::int32_t* out) const {
    for (std::size_t done = 0; done < blocks;) {
        std::size_t some = 0;
        while (some < kTogether && done + some < blocks && !absent(other, first + done + some))
            ++some;
        if (some == 0) {
            ++done;
            continue;
        }
        encode_whole(at(other.elements, first + done), some, exponents + done, out + done * kBlock);
        done += some;
    }
}

void HostRanks::encode_whole(const void* elements, std::size_t blocks,
                             const std::uint8_t* exponents, std::int32_t* out) const {
    if (dtype_ == codec::Dtype::Int32) {
        merge(op_, {static_cast<const std::int32_t*>(elements), blocks * kBlock}, out);
        return;
    }
    std::array<std::int32_t, kTogether * kBlock> integers;
    if (floating_)
        codec::quantise(numbers_, blocks, elements, exponents, integers.data());
    else
        codec::to_sortable(dtype_, op_, elements, blocks * kBlock, integers.data());
    merge(op_, {integers.data(), blocks * kBlock}, out);
}

void HostRanks::count_classes(std::size_t block, std::int32_t* out) const {
    std::array<std::int32_t, kBlock> counts;
    for (const Other& other : others_) {
        if (absent(other, block)) continue;
        codec::class_counts(dtype_, at(other.elements, block), length(block), counts.data());
        merge(codec::Op::Sum, {counts.data(), length(block)}, out);
    }
}

void HostRanks::encode_direct(std::int32_t* out) const {
    std::vector<std::int32_t> integers(others_.empty() ? 0 : count_);
    for (const Other& other : others_) {
        codec::to_sortable(dtype_, op_, other.elements, count_, integers.data());
        merge(op_, integers, out);
    }
}

void HostRanks::encode_exact(std::int32_t* words) const {
    std::vector<std::int32_t> more(others_.empty() ? 0 : count_ * wire::kExactWords);
    for (const Other& other : others_) {
        codec::exact_encode(dtype_, other.elements, count_, more.data());
        merge(codec::Op::Sum, more, words);
    }
}

}  // namespace afflux::worker
