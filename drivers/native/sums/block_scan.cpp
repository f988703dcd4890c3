#include "sums/block_scan.hpp"

#include <algorithm>
#include <cstring>

#include "contract/wire.hpp"

namespace afflux::sums {
namespace {

// Of elements as unsigned integers of their size: all bits but the sign, and of these +infinity.
template <typename Bits, Bits kInfinity, int kFractionBits>
struct Floats {
    using Integer = Bits;

    [[gnu::always_inline]] static inline std::uint8_t exponent(Bits greatest) {
        return static_cast<std::uint8_t>(std::max(1, static_cast<int>(greatest >> kFractionBits)));
    }
    [[gnu::always_inline]] static inline Bits finite(Bits bits) {
        const auto magnitude = static_cast<Bits>(bits & static_cast<Bits>(~Bits{0} >> 1));
        return magnitude < kInfinity ? magnitude : Bits{0};
    }
};

using Float32 = Floats<std::uint32_t, 0x7F80'0000, 23>;
using Float16 = Floats<std::uint16_t, 0x7C00, 10>;
using Bfloat16 = Floats<std::uint16_t, 0x7F80, 7>;

struct Int32 {
    using Integer = std::uint32_t;

    [[gnu::always_inline]] static inline std::uint8_t exponent(Integer) { return 1; }
    [[gnu::always_inline]] static inline Integer finite(Integer) { return 0; }
};

template <typename Elements>
[[gnu::always_inline]] inline void scan(const std::uint8_t* from, std::size_t blocks,
                                        std::uint8_t* exponents) {
    using Bits = typename Elements::Integer;
    constexpr std::size_t kElements = wire::kBlockBytes / sizeof(Bits);
    for (std::size_t block = 0; block < blocks; ++block, from += wire::kBlockBytes) {
        Bits greatest = 0, any = 0;
        for (std::size_t i = 0; i < kElements; ++i) {
            Bits bits;
            std::memcpy(&bits, from + i * sizeof bits, sizeof bits);
            any = static_cast<Bits>(any | bits);
            greatest = std::max(greatest, Elements::finite(bits));
        }
        exponents[block] = any == 0 ? std::uint8_t{0} : Elements::exponent(greatest);
    }
}

[[gnu::always_inline]] inline void scan_any(codec::Dtype dtype, const std::uint8_t* from,
                                            std::size_t blocks, std::uint8_t* exponents) {
    switch (dtype) {
        case codec::Dtype::Float32:
            return scan<Float32>(from, blocks, exponents);
        case codec::Dtype::Float16:
            return scan<Float16>(from, blocks, exponents);
        case codec::Dtype::Bfloat16:
            return scan<Bfloat16>(from, blocks, exponents);
        case codec::Dtype::Int32:
            return scan<Int32>(from, blocks, exponents);
    }
}

using Scan = void (*)(codec::Dtype, const std::uint8_t*, std::size_t, std::uint8_t*);

#if defined(__x86_64__)
[[gnu::target("avx2")]] void scan_avx2(codec::Dtype dtype, const std::uint8_t* from,
                                       std::size_t blocks, std::uint8_t* exponents) {
    scan_any(dtype, from, blocks, exponents);
}

[[gnu::target("avx512f,avx512bw")]] void scan_avx512(codec::Dtype dtype, const std::uint8_t* from,
                                                     std::size_t blocks, std::uint8_t* exponents) {
    scan_any(dtype, from, blocks, exponents);
}
#endif

void scan_default(codec::Dtype dtype, const std::uint8_t* from, std::size_t blocks,
                  std::uint8_t* exponents) {
    scan_any(dtype, from, blocks, exponents);
}

Scan best() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512bw")) return scan_avx512;
    if (__builtin_cpu_supports("avx2")) return scan_avx2;
#endif
    return scan_default;
}

}  // namespace

void scan_blocks(codec::Dtype dtype, const void* elements, std::size_t blocks,
                 std::uint8_t* exponents) {
    static const Scan chosen = best();
    chosen(dtype, static_cast<const std::uint8_t*>(elements), blocks, exponents);
}

}  // namespace afflux::sums
