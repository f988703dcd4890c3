#include "selection/least.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <vector>

namespace afflux::selection {

Least least_of(std::span<const std::int32_t> numbers, std::size_t count) {
    // Equal shares of the range tell where it lies; only those in its share are put in order.
    constexpr std::size_t kShares = 4096;
    Magnitude first = kLargestMagnitude;
    Magnitude most = 0;
    for (const std::int32_t each : numbers) {
        first = std::min(first, std::abs(each));
        most = std::max(most, std::abs(each));
    }
    const auto shift = std::bit_width(static_cast<std::uint32_t>(most - first) / kShares);
    const auto share_of = [&](std::int32_t number) {
        return static_cast<std::size_t>((std::abs(number) - first) >> shift);
    };
    std::array<std::size_t, kShares> shares{};
    for (const std::int32_t each : numbers) ++shares[share_of(each)];
    std::size_t share = kShares - 1;
    std::size_t larger = 0;
    while (larger + shares[share] < count) larger += shares[share--];
    std::vector<Magnitude> near;
    near.reserve(shares[share]);
    for (const std::int32_t each : numbers) {
        if (share_of(each) == share) near.push_back(std::abs(each));
    }
    const auto last = near.begin() + static_cast<std::ptrdiff_t>(count - larger - 1);
    std::nth_element(near.begin(), last, near.end(), std::greater<>());
    return {*last, static_cast<std::size_t>(std::count(near.begin(), last + 1, *last))};
}

}  // namespace afflux::selection
