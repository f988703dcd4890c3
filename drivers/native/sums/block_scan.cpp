#include "sums/block_scan.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "arithmetic/instruction_set.hpp"
#include "contract/wire.hpp"

namespace afflux::sums {
namespace {

// Elements as signed integers of their size: without the sign bit they are not negative, so that
// comparisons are those of processors without unsigned ones.
template <typename Bits, Bits kInfinity, int kFractionBits>
struct Floats {
    using Integer = Bits;
    static constexpr Bits kNotFinite = kInfinity;

    static constexpr std::uint8_t exponent(Bits greatest) {
        return static_cast<std::uint8_t>(std::max(1, static_cast<int>(greatest >> kFractionBits)));
    }
};

using Float32 = Floats<std::int32_t, 0x7F80'0000, 23>;
using Float16 = Floats<std::int16_t, 0x7C00, 10>;
using Bfloat16 = Floats<std::int16_t, 0x7F80, 7>;
// No exponents: any magnitude makes 1.
using Int32 = Floats<std::int32_t, 1, 0>;

template <typename Bits, std::size_t kBytes>
using Vector [[gnu::vector_size(kBytes)]] = Bits;

// The greatest of a vector's integers, by halves.
template <typename Bits, std::size_t kBytes>
[[gnu::always_inline]] inline Bits greatest_of(const Vector<Bits, kBytes>& vector) {
    if constexpr (kBytes > 16) {
        Vector<Bits, kBytes / 2> low, high;
        std::memcpy(&low, &vector, sizeof low);
        std::memcpy(&high, reinterpret_cast<const char*>(&vector) + sizeof low, sizeof high);
        return greatest_of<Bits, kBytes / 2>(low > high ? low : high);
    } else {
        Bits each[kBytes / sizeof(Bits)];
        std::memcpy(each, &vector, kBytes);
        Bits greatest = 0;
        for (const Bits bits : each) greatest = greatest > bits ? greatest : bits;
        return greatest;
    }
}

template <typename Bits, std::size_t kBytes>
[[gnu::always_inline]] inline bool any_of(const Vector<Bits, kBytes>& vector) {
    std::uint64_t words[kBytes / 8], any = 0;
    std::memcpy(words, &vector, kBytes);
    for (const std::uint64_t word : words) any |= word;
    return any != 0;
}

template <typename Elements, std::size_t kBytes>
[[gnu::always_inline]] inline void scan(const std::uint8_t* from, std::size_t blocks,
                                        std::uint8_t* exponents) {
    using Bits = typename Elements::Integer;
    using Many = Vector<Bits, kBytes>;
    const Many magnitudes = Many{} + std::numeric_limits<Bits>::max();
    const Many not_finite = Many{} + Elements::kNotFinite;
    for (std::size_t block = 0; block < blocks; ++block, from += wire::kBlockBytes) {
        Many greatest{}, any{};
        for (std::size_t at = 0; at < wire::kBlockBytes; at += kBytes) {
            Many bits;
            std::memcpy(&bits, from + at, kBytes);
            any |= bits;
            const Many magnitude = bits & magnitudes;
            const Many finite = magnitude < not_finite ? magnitude : Many{};
            greatest = finite > greatest ? finite : greatest;
        }
        exponents[block] = any_of<Bits, kBytes>(any)
                               ? Elements::exponent(greatest_of<Bits, kBytes>(greatest))
                               : std::uint8_t{0};
    }
}

template <std::size_t kBytes>
[[gnu::always_inline]] inline void scan_any(arithmetic::Dtype dtype, const std::uint8_t* from,
                                            std::size_t blocks, std::uint8_t* exponents) {
    switch (dtype) {
        case arithmetic::Dtype::Float32:
            return scan<Float32, kBytes>(from, blocks, exponents);
        case arithmetic::Dtype::Float16:
            return scan<Float16, kBytes>(from, blocks, exponents);
        case arithmetic::Dtype::Bfloat16:
            return scan<Bfloat16, kBytes>(from, blocks, exponents);
        case arithmetic::Dtype::Int32:
            return scan<Int32, kBytes>(from, blocks, exponents);
    }
}

using Scan = void (*)(arithmetic::Dtype, const std::uint8_t*, std::size_t, std::uint8_t*);

#if defined(__x86_64__)
[[gnu::target("avx2")]] void scan_avx2(arithmetic::Dtype dtype, const std::uint8_t* from,
                                       std::size_t blocks, std::uint8_t* exponents) {
    scan_any<32>(dtype, from, blocks, exponents);
}

[[gnu::target("avx512f,avx512bw")]] void scan_avx512(arithmetic::Dtype dtype,
                                                     const std::uint8_t* from, std::size_t blocks,
                                                     std::uint8_t* exponents) {
    scan_any<64>(dtype, from, blocks, exponents);
}
#endif

void scan_default(arithmetic::Dtype dtype, const std::uint8_t* from, std::size_t blocks,
                  std::uint8_t* exponents) {
    scan_any<16>(dtype, from, blocks, exponents);
}

// By the level of the instruction set.
constexpr Scan kScans[] = {
    scan_default,
#if defined(__x86_64__)
    scan_avx2,
    scan_avx512,
#endif
};

}  // namespace

void scan_blocks(arithmetic::Dtype dtype, const void* elements, std::size_t blocks,
                 std::uint8_t* exponents) {
    kScans[arithmetic::instruction_set_level()](dtype, static_cast<const std::uint8_t*>(elements),
                                                blocks, exponents);
}

void scan_into(arithmetic::Dtype dtype, const void* elements, std::size_t bytes, void* out,
               std::uint8_t* exponents) {
    // So many blocks stay in the nearest cache between the two.
    constexpr std::size_t kTogether = 64;
    const auto* from = static_cast<const std::uint8_t*>(elements);
    auto* to = static_cast<std::uint8_t*>(out);
    for (std::size_t whole = bytes / wire::kBlockBytes; whole > 0;) {
        const std::size_t blocks = std::min(whole, kTogether);
        scan_blocks(dtype, from, blocks, exponents);
        for (std::size_t block = 0; block < blocks; ++block) {
            if (exponents[block] == 0) continue;
            std::memcpy(to + block * wire::kBlockBytes, from + block * wire::kBlockBytes,
                        wire::kBlockBytes);
        }
        whole -= blocks;
        exponents += blocks;
        from += blocks * wire::kBlockBytes;
        to += blocks * wire::kBlockBytes;
    }
    if (const std::size_t rest = bytes % wire::kBlockBytes; rest != 0) {
        std::memset(to, 0, wire::kBlockBytes);
        std::memcpy(to, from, rest);
        scan_blocks(dtype, to, 1, exponents);
    }
}

}  // namespace afflux::sums
