#include "narrow/fixed_point.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "narrow/processors.hpp"

namespace afflux::narrow {
namespace {

constexpr std::int32_t kWithoutSign = 0x7FFFFFFF;
constexpr unsigned kWordBits = 32;
// Added to a float of at most 22 bits it rounds it to an integer, ties to even, in its low bits.
constexpr float kRounding = 12582912.0F;  // 1.5 * 2**23
constexpr std::int32_t kRoundingBits = std::bit_cast<std::int32_t>(kRounding);
// Of a quantum: beyond it, its inverse would not be a float32. A smaller remainder stays with the
// rank.
constexpr int kLeastPower = -126;

struct Quantum {
    float unit, inverse;
};

Quantum quantum_of(std::int32_t magnitude, std::int32_t most) {
    int power = 0;
    const float largest = std::bit_cast<float>(magnitude);
    const float mantissa = std::frexp(largest, &power);
    const int bits = std::bit_width(static_cast<std::uint32_t>(most));
    power -= bits;
    // Rounded it may be more than a rank's integers may be.
    if (std::rint(std::ldexp(mantissa, bits)) > static_cast<float>(most)) ++power;
    power = std::max(power, kLeastPower);
    return {std::ldexp(1.0F, power), std::ldexp(1.0F, -power)};
}

AFFLUX_FOR_EACH_PROCESSOR
std::int32_t magnitude_of(const float* elements, std::size_t count) {
    std::int32_t most = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const std::int32_t magnitude = std::bit_cast<std::int32_t>(elements[i]) & kWithoutSign;
        most = magnitude > most ? magnitude : most;
    }
    return most;
}

AFFLUX_INLINE std::int32_t integer_of(float element, float inverse) {
    return std::bit_cast<std::int32_t>(element * inverse + kRounding) - kRoundingBits;
}

AFFLUX_FOR_EACH_PROCESSOR
void pack_group(const float* elements, unsigned fields, float inverse, std::int32_t* words) {
    const unsigned bits = kWordBits / fields;
    std::uint32_t sums[kGroupWords] = {};
    for (unsigned f = 0; f < fields; ++f) {
        const unsigned shift = f * bits;
        for (std::size_t w = 0; w < kGroupWords; ++w) {
            const std::int32_t integer = integer_of(elements[f * kGroupWords + w], inverse);
            sums[w] += static_cast<std::uint32_t>(integer) << shift;
        }
    }
    for (std::size_t w = 0; w < kGroupWords; ++w) words[w] = static_cast<std::int32_t>(sums[w]);
}

AFFLUX_FOR_EACH_PROCESSOR
void unpack_group(const std::int32_t* sums, unsigned fields, const Quantum& quantum, float ranks,
                  float* elements, float* averages) {
    const unsigned bits = kWordBits / fields;
    const unsigned above = kWordBits - bits;
    const float unit = quantum.unit;
    const float inverse = quantum.inverse;
    // All are read before an average is written where they may lie.
    std::int32_t rest[kGroupWords];
    __builtin_memcpy(rest, sums, sizeof rest);
    for (unsigned f = 0; f < fields; ++f) {
        // A shift by all bits of a word is not defined, nor needed.
        const unsigned next = f + 1 < fields ? bits : 0;
        float* const own = elements + f * kGroupWords;
        float* const out = averages + f * kGroupWords;
        for (std::size_t w = 0; w < kGroupWords; ++w) {
            const auto word = static_cast<std::uint32_t>(rest[w]);
            const std::int32_t field = static_cast<std::int32_t>(word << above) >> above;
            rest[w] = static_cast<std::int32_t>(word - static_cast<std::uint32_t>(field)) >> next;
            out[w] = static_cast<float>(field) / ranks * unit;
            own[w] -= static_cast<float>(integer_of(own[w], inverse)) * unit;
        }
    }
}

// The last group may be shorter: in it elements are followed by zeros.
struct Padded {
    std::array<float, kMostFields * kGroupWords> elements{}, averages{};
    std::array<std::int32_t, kGroupWords> words{};
};

}  // namespace

std::size_t Form::groups(std::size_t elements) const {
    return (elements + group_elements() - 1) / group_elements();
}

std::size_t Form::words(std::size_t elements) const {
    const std::size_t rest = elements % group_elements();
    return elements / group_elements() * kGroupWords + std::min(rest, kGroupWords);
}

void magnitudes(std::span<const float> elements, const Form& form, std::span<std::int32_t> out) {
    for (std::size_t g = 0; g < out.size(); ++g) {
        const std::size_t first = g * form.group_elements();
        const std::size_t count = std::min(form.group_elements(), elements.size() - first);
        out[g] = magnitude_of(elements.data() + first, count);
    }
}

void pack(std::span<const float> elements, std::span<const std::int32_t> magnitudes,
          const Form& form, std::span<std::int32_t> words) {
    const std::size_t size = form.group_elements();
    for (std::size_t g = 0; g < magnitudes.size(); ++g) {
        const float inverse = quantum_of(magnitudes[g], form.most).inverse;
        const std::span<const float> own = elements.subspan(g * size);
        const std::span<std::int32_t> out = words.subspan(g * kGroupWords);
        if (own.size() >= size) {
            pack_group(own.data(), form.fields, inverse, out.data());
            continue;
        }
        Padded padded;
        std::copy(own.begin(), own.end(), padded.elements.begin());
        pack_group(padded.elements.data(), form.fields, inverse, padded.words.data());
        std::copy_n(padded.words.begin(), out.size(), out.begin());
    }
}

void unpack(std::span<const std::int32_t> sums, std::span<const std::int32_t> magnitudes,
            const Form& form, int ranks, std::span<float> elements, std::span<float> averages) {
    const std::size_t size = form.group_elements();
    const auto divisor = static_cast<float>(ranks);
    for (std::size_t g = 0; g < magnitudes.size(); ++g) {
        const Quantum quantum = quantum_of(magnitudes[g], form.most);
        const std::span<const std::int32_t> in = sums.subspan(g * kGroupWords);
        const std::span<float> own = elements.subspan(g * size);
        const std::span<float> out = averages.subspan(g * size);
        if (own.size() >= size) {
            unpack_group(in.data(), form.fields, quantum, divisor, own.data(), out.data());
            continue;
        }
        Padded padded;
        std::copy(in.begin(), in.end(), padded.words.begin());
        std::copy(own.begin(), own.end(), padded.elements.begin());
        unpack_group(padded.words.data(), form.fields, quantum, divisor, padded.elements.data(),
                     padded.averages.data());
        std::copy_n(padded.elements.begin(), own.size(), own.begin());
        std::copy_n(padded.averages.begin(), out.size(), out.begin());
    }
}

}  // namespace afflux::narrow
