#include "codec/scan.hpp"

#include <algorithm>
#include <cstring>

#include "codec/elements.hpp"
#include "codec/environment.hpp"
#include "codec/kernels/table.hpp"
#include "codec/padded.hpp"

namespace afflux::codec {

void scan(Dtype dtype, const void* elements, std::size_t count, std::uint8_t* exponents) {
    const FloatEnvironment environment;
    const std::size_t whole = count / kBlock;
    kernels().scan(dtype, whole, elements, nullptr, exponents);
    if (count % kBlock) {
        const Padded tail(dtype, at(dtype, elements, whole * kBlock), count % kBlock);
        kernels().scan(dtype, 1, tail.block, nullptr, exponents + whole);
    }
}

void scan_copy(Dtype dtype, const void* elements, std::size_t count, void* out,
               std::uint8_t* exponents) {
    const FloatEnvironment environment;
    const std::size_t whole = count / kBlock;
    kernels().scan(dtype, whole, elements, out, exponents);
    if (count % kBlock) {
        const Padded tail(dtype, at(dtype, elements, whole * kBlock), count % kBlock);
        kernels().scan(dtype, 1, tail.block, at(dtype, out, whole * kBlock), exponents + whole);
    }
}

void scan_clear(Dtype dtype, void* elements, std::size_t count, void* out,
                std::uint8_t* exponents) {
    const FloatEnvironment environment;
    const std::size_t whole = count / kBlock;
    kernels().scan_clear(dtype, whole, elements, out, exponents);
    if (count % kBlock) {
        void* const rest = at(dtype, elements, whole * kBlock);
        const Padded tail(dtype, rest, count % kBlock);
        kernels().scan(dtype, 1, tail.block, out ? at(dtype, out, whole * kBlock) : nullptr,
                       exponents + whole);
        if (!exponents[whole]) clear(dtype, rest, count % kBlock);
    }
}

std::uint8_t finite_exponent(Dtype dtype, const void* block, std::size_t count) {
    std::uint32_t greatest = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t bits = widen(dtype, bits_at(dtype, block, i));
        if (is_finite(bits)) greatest = std::max(greatest, bits & 0x7FFFFFFF);
    }
    const std::uint32_t field = greatest >> 23;
    return static_cast<std::uint8_t>(greatest && !field ? 1 : field);
}

void clear(Dtype dtype, void* elements, std::size_t count) {
    const std::size_t bytes = size_of(dtype) * count;
    const auto* at = static_cast<const unsigned char*>(elements);
    std::uint64_t some = 0;
    std::size_t done = 0;
    for (; done + 8 <= bytes; done += 8) {
        std::uint64_t word;
        std::memcpy(&word, at + done, 8);
        some |= word;
    }
    for (; done < bytes; ++done) some |= at[done];
    if (some) std::memset(elements, 0, bytes);
}

}  // namespace afflux::codec
