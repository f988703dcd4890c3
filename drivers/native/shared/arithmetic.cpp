#include "shared/arithmetic.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <string>

#include "codec/elementwise.hpp"
#include "codec/reduce.hpp"
#include "codec/scan.hpp"
#include "shared/presence.hpp"

namespace afflux::shared {
namespace {

// The type of elements that are reduced as they are, if they can be.
std::optional<codec::Plain> plain(Dtype dtype) {
    switch (dtype) {
        case Dtype::Int64:
            return codec::Plain::Int64;
        case Dtype::Int32:
            return codec::Plain::Int32;
        case Dtype::Int16:
            return codec::Plain::Int16;
        case Dtype::Int8:
            return codec::Plain::Int8;
        case Dtype::Uint8:
            return codec::Plain::Uint8;
        case Dtype::Float64:
            return codec::Plain::Float64;
        default:
            return std::nullopt;
    }
}

constexpr bool in_codec(Dtype dtype, Op op) {
    return dtype <= Dtype::Bfloat16 && op <= Op::Min &&
           codec::is_defined(static_cast<codec::Dtype>(dtype), static_cast<codec::Op>(op));
}

constexpr bool is_float(Dtype dtype) {
    return dtype >= Dtype::Float32 && dtype <= Dtype::Bfloat16;
}

static_assert(static_cast<int>(Op::Product) == static_cast<int>(codec::PlainOp::Product));

}  // namespace

Arithmetic::Arithmetic(int ranks, Dtype dtype, Op op, bool numbers)
    : ranks_(ranks), dtype_(dtype), op_(op) {
    if (numbers && is_float(dtype) && op <= Op::Min) {
        floats_.emplace(ranks, static_cast<codec::Dtype>(dtype), static_cast<codec::Op>(op));
    } else if (in_codec(dtype, op)) {
        numbers_.emplace(ranks, static_cast<codec::Dtype>(dtype), static_cast<codec::Op>(op));
    } else if (!plain(dtype)) {
        throw std::invalid_argument("no reduction " + std::to_string(static_cast<int>(op)) +
                                    " of dtype " + std::to_string(static_cast<int>(dtype)));
    }
}

bool Arithmetic::is_exact(std::size_t count) const {
    return numbers_ && codec::is_exact(numbers_->dtype, numbers_->op, count);
}

std::size_t Arithmetic::take(const std::byte* from, std::size_t count, std::byte* out,
                             std::uint8_t* exponents) const {
    const std::size_t bytes = count * element_bytes();
    if (!scanned()) {
        if (out) std::memcpy(out, from, bytes);
        return 0;
    }
    if (floats_)
        return out ? copy_present(from, bytes, out, exponents)
                   : find_present(from, bytes, exponents);
    const std::size_t blocks = codec::blocks_of(count);
    if (out)
        codec::scan_copy(numbers_->dtype, from, count, out, exponents);
    else
        codec::scan(numbers_->dtype, from, count, exponents);
    return blocks - static_cast<std::size_t>(std::count(exponents, exponents + blocks, 0));
}

void Arithmetic::reduce(std::size_t blocks, const void* const* elements,
                        const std::uint8_t* const* exponents, std::byte* out, std::uint8_t* present,
                        std::byte* also) const {
    if (floats_) return floats_->reduce(blocks, elements, exponents, out, present, also);
    if (numbers_) {
        codec::reduce(*numbers_, blocks, ranks_, elements, exponents, out, present);
    } else {
        codec::reduce_plain(*plain(dtype_), static_cast<codec::PlainOp>(op_), blocks * block(),
                            ranks_, elements, out);
        std::fill_n(present, blocks, std::uint8_t{1});
    }
    if (!also) return;
    for_runs(present, blocks, [&](std::size_t first, std::size_t last, bool is_present) {
        const std::size_t begin = first * block() * element_bytes();
        if (is_present)
            std::memcpy(also + begin, out + begin, (last - first) * block() * element_bytes());
    });
}

void Arithmetic::reduce_all(std::size_t count, bool exact, const void* const* elements,
                            const std::uint8_t* const* exponents, std::byte* out,
                            std::uint8_t* present) const {
    const std::size_t bytes = element_bytes(), block_bytes = block() * bytes;
    if (!in_place()) {
        codec::reduce_plain(*plain(dtype_), static_cast<codec::PlainOp>(op_), count, ranks_,
                            elements, out);
        return;
    }
    if (exact) {
        codec::exact(*numbers_, count, ranks_, elements, out);
        return;
    }
    // Whole blocks go directly to where they belong, the last one, if it is short, through the
    // stack.
    const std::size_t whole = count / block(), rest = count % block();
    reduce(whole, elements, exponents, out, present);
    if (rest != 0) {
        alignas(64) std::array<std::byte, wire::kBlockBytes> last;
        std::array<const void*, codec::kMaxRanks> last_elements;
        std::array<const std::uint8_t*, codec::kMaxRanks> last_exponents;
        for (int r = 0; r < ranks_; ++r) {
            const auto i = static_cast<std::size_t>(r);
            last_elements[i] = static_cast<const std::byte*>(elements[i]) + whole * block_bytes;
            last_exponents[i] = exponents[i] + whole;
        }
        reduce(1, last_elements.data(), last_exponents.data(), last.data(), &present[whole]);
        if (present[whole]) std::memcpy(out + whole * block_bytes, last.data(), rest * bytes);
    }
    for (std::size_t b = 0; b < whole + (rest != 0); ++b)
        if (!present[b])
            std::memset(out + b * block_bytes, 0, std::min(block(), count - b * block()) * bytes);
}

void Arithmetic::reduce_in_place(std::size_t count, void* const* elements) const {
    if (floats_)
        floats_->reduce_in_place(count, elements);
    else
        codec::reduce_in_place(*numbers_, count, ranks_, elements);
}

}  // namespace afflux::shared
