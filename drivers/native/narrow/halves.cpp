#include "narrow/halves.hpp"

#include <bit>
#include <cstddef>

#include "narrow/processors.hpp"

namespace afflux::narrow {
namespace {

constexpr std::uint32_t kSign = 0x80000000;
constexpr unsigned kMantissaBits = 23;
// float16: 10 bits after the first, exponents from -14 on, and with them what is added to round.
constexpr unsigned kCutBits = kMantissaBits - 10;
constexpr std::uint32_t kLeastNormal = (127U - 14) << kMantissaBits;
constexpr std::uint32_t kToRound = kCutBits << kMantissaBits;
constexpr std::uint32_t kRebias = (127U - 15) << kMantissaBits;
constexpr float kLeast = 1.0F / (1 << 24);
constexpr unsigned kSignShift = 16;
// Sums are read before averages are written where they may lie.
constexpr std::size_t kChunk = 512;
// bfloat16 is the upper half of float32.
constexpr unsigned kUpper = 16;

AFFLUX_INLINE std::uint32_t bits_of(float x) {
    return std::bit_cast<std::uint32_t>(x);
}

AFFLUX_INLINE float float_of(std::uint32_t bits) {
    return std::bit_cast<float>(bits);
}

// A float32's rounding to the type, as float32.
template <HalfType kType>
AFFLUX_INLINE float rounded(float x, float limit) {
    x = x > limit ? limit : x;
    x = x < -limit ? -limit : x;
    const std::uint32_t bits = bits_of(x);
    if constexpr (kType == HalfType::Bfloat16) {
        return float_of((bits + 0x7FFF + (bits >> kUpper & 1)) & 0xFFFF0000);
    } else {
        const std::uint32_t magnitude = bits & ~kSign;
        const std::uint32_t exponent = magnitude & (0xFFU << kMantissaBits);
        // A power of two next to which the sum has as many bits as are to be left.
        const float power =
            float_of((exponent > kLeastNormal ? exponent : kLeastNormal) + kToRound);
        return float_of(bits_of((float_of(magnitude) + power) - power) | (bits & kSign));
    }
}

template <HalfType kType>
AFFLUX_INLINE Half to_half(float x) {
    const std::uint32_t bits = bits_of(x);
    if constexpr (kType == HalfType::Bfloat16) {
        return static_cast<Half>(bits >> kUpper);
    } else {
        const std::uint32_t magnitude = bits & ~kSign;
        const auto tiny = static_cast<std::uint32_t>(
            static_cast<std::int32_t>(float_of(magnitude) * (1.0F / kLeast)));
        const std::uint32_t normal = (magnitude - kRebias) >> kCutBits;
        return static_cast<Half>((magnitude < kLeastNormal ? tiny : normal) |
                                 (bits & kSign) >> kSignShift);
    }
}

template <HalfType kType>
AFFLUX_INLINE float from_half(Half half) {
    const std::uint32_t bits = half;
    if constexpr (kType == HalfType::Bfloat16) {
        return float_of(bits << kUpper);
    } else {
        const std::uint32_t magnitude = bits & 0x7FFF;
        const float tiny = static_cast<float>(static_cast<std::int32_t>(magnitude)) * kLeast;
        const std::uint32_t normal = (magnitude << kCutBits) + kRebias;
        const std::uint32_t found = magnitude < 0x400 ? bits_of(tiny) : normal;
        return float_of(found | (bits & 0x8000) << kSignShift);
    }
}

template <HalfType kType>
AFFLUX_INLINE std::int32_t to_all(const float* elements, std::size_t count, float limit,
                                  Half* out) {
    std::int32_t most = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const float element = elements[i];
        const auto magnitude = static_cast<std::int32_t>(bits_of(element) & ~kSign);
        most = magnitude > most ? magnitude : most;
        out[i] = to_half<kType>(rounded<kType>(element, limit));
    }
    return most;
}

template <HalfType kType>
AFFLUX_INLINE void from_all(const Half* sums, std::size_t count, float limit, float ranks,
                            float* elements, float* averages) {
    for (std::size_t first = 0; first < count; first += kChunk) {
        const std::size_t size = count - first < kChunk ? count - first : kChunk;
        Half chunk[kChunk];
        __builtin_memcpy(chunk, sums + first, size * sizeof(Half));
        for (std::size_t i = 0; i < size; ++i) {
            averages[first + i] = from_half<kType>(chunk[i]) / ranks;
        }
        for (std::size_t i = first; i < first + size; ++i) {
            elements[i] -= rounded<kType>(elements[i], limit);
        }
    }
}

AFFLUX_FOR_EACH_PROCESSOR
std::int32_t to_float16(const float* elements, std::size_t count, float limit, Half* out) {
    return to_all<HalfType::Float16>(elements, count, limit, out);
}

AFFLUX_FOR_EACH_PROCESSOR
std::int32_t to_bfloat16(const float* elements, std::size_t count, float limit, Half* out) {
    return to_all<HalfType::Bfloat16>(elements, count, limit, out);
}

AFFLUX_FOR_EACH_PROCESSOR
void from_float16(const Half* sums, std::size_t count, float limit, float ranks, float* elements,
                  float* averages) {
    from_all<HalfType::Float16>(sums, count, limit, ranks, elements, averages);
}

AFFLUX_FOR_EACH_PROCESSOR
void from_bfloat16(const Half* sums, std::size_t count, float limit, float ranks, float* elements,
                   float* averages) {
    from_all<HalfType::Bfloat16>(sums, count, limit, ranks, elements, averages);
}

}  // namespace

std::int32_t to_halves(std::span<const float> elements, HalfType type, float limit,
                       std::span<Half> out) {
    const auto loop = type == HalfType::Float16 ? &to_float16 : &to_bfloat16;
    return loop(elements.data(), elements.size(), limit, out.data());
}

void from_halves(std::span<const Half> sums, HalfType type, float limit, int ranks,
                 std::span<float> elements, std::span<float> averages) {
    const auto loop = type == HalfType::Float16 ? &from_float16 : &from_bfloat16;
    loop(sums.data(), sums.size(), limit, static_cast<float>(ranks), elements.data(),
         averages.data());
}

}  // namespace afflux::narrow
