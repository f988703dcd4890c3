// Connections that have not shown yet that they are a node's: how many there may be, and which of
// them makes room.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "nccl/interfaces.hpp"

namespace afflux::nccl {

inline constexpr std::size_t kStrangers = 128;

// The oldest of the address that has most of them, so that a flood of connections only drives out
// its own. There must be one; each has an `address`, and the older ones come first.
template <typename Stranger>
typename std::vector<Stranger>::iterator most_crowded(std::vector<Stranger>& all) {
    std::map<std::string, std::size_t> numbers;
    for (const Stranger& each : all) ++numbers[each.address];
    const auto most = std::max_element(
        numbers.begin(), numbers.end(),
        [](const auto& one, const auto& other) { return one.second < other.second; });
    return std::find_if(all.begin(), all.end(),
                        [&most](const Stranger& each) { return each.address == most->first; });
}

}  // namespace afflux::nccl
