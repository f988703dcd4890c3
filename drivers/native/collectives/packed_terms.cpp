#include "collectives/packed_terms.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "arithmetic/environment.hpp"

namespace afflux::collectives {
namespace {

constexpr std::size_t kElements = wire::kBlockBytes / 4;
constexpr std::size_t kIntegerBytes = 5;
// Bits of an integer without its sign.
constexpr int kBits = 39;
constexpr std::uint32_t kMagnitude = 0x7FFFFFFF;
constexpr int kFractionBits = 23, kBias = 127;
// Of finite terms whose sum is surely one.
constexpr int kMostExponent = 253;

using Block = std::array<float, kElements>;

Block block_at(const std::byte* from) {
    Block block;
    std::memcpy(block.data(), from, sizeof block);
    return block;
}

double power_of_two(int exponent) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

}  // namespace

bool pack_terms(const std::byte* first, const std::byte* second, std::byte* out) {
    const arithmetic::FloatEnvironment environment;
    const Block one = block_at(first), other = block_at(second);
    std::uint32_t most = 0, signs = 0;
    for (std::size_t i = 0; i < kElements; ++i) {
        const auto a = std::bit_cast<std::uint32_t>(one[i]);
        const auto b = std::bit_cast<std::uint32_t>(other[i]);
        most = std::max(most, std::max(a & kMagnitude, b & kMagnitude));
        signs |= (a == ~kMagnitude) & (b == ~kMagnitude);
    }
    const auto largest = static_cast<int>(most >> kFractionBits);
    if (signs || largest > kMostExponent) return false;
    // Both terms are below 2 ** (largest - bias + 1), and their sum below twice as much.
    const std::int32_t unit = std::max(largest, 1) - kBias + 2 - kBits;
    const double scale = power_of_two(-unit);
    // To add and take away 1.5 * 2 ** 52 rounds to integers; bits below the unit then show.
    constexpr double kRounds = 0x1.8p52;
    constexpr auto kZero = std::bit_cast<std::int64_t>(kRounds);
    std::array<std::int64_t, kElements> integers;
    std::uint64_t inexact = 0;
    for (std::size_t i = 0; i < kElements; ++i) {
        const double a = one[i] * scale, b = other[i] * scale;
        const double whole_a = a + kRounds, whole_b = b + kRounds;
        inexact |= static_cast<std::uint64_t>(whole_a - kRounds != a) |
                   static_cast<std::uint64_t>(whole_b - kRounds != b);
        integers[i] = (std::bit_cast<std::int64_t>(whole_a) - kZero) +
                      (std::bit_cast<std::int64_t>(whole_b) - kZero);
    }
    if (inexact) return false;
    std::memcpy(out, &unit, sizeof unit);
    out += sizeof unit;
    // The next one overwrites the upper bytes of each.
    for (std::size_t i = 0; i + 1 < kElements; ++i, out += kIntegerBytes)
        std::memcpy(out, &integers[i], sizeof integers[i]);
    std::memcpy(out, &integers[kElements - 1], kIntegerBytes);
    return true;
}

bool unpack_terms(const std::byte* from, std::byte* first, std::byte* second) {
    const arithmetic::FloatEnvironment environment;
    std::int32_t unit;
    std::memcpy(&unit, from, sizeof unit);
    from += sizeof unit;
    if (unit < 1 - kBias + 2 - kBits || unit > kMostExponent - kBias + 2 - kBits) return false;
    const double scale = power_of_two(unit);
    Block one, other;
    for (std::size_t i = 0; i < kElements; ++i, from += kIntegerBytes) {
        std::uint64_t bits = 0;
        std::memcpy(&bits, from, kIntegerBytes);
        const std::int64_t integer = static_cast<std::int64_t>(bits << 24) >> 24;
        const double sum = static_cast<double>(integer) * scale;
        one[i] = static_cast<float>(sum);
        const double rest = sum - one[i];
        other[i] = rest != 0 ? static_cast<float>(rest) : -0.0f;
    }
    std::memcpy(first, one.data(), sizeof one);
    std::memcpy(second, other.data(), sizeof other);
    return true;
}

}  // namespace afflux::collectives
