#include "engine/merge.hpp"

#include <algorithm>

#include "packet/octets.hpp"

namespace afflux::engine {
namespace {

std::size_t add(std::int32_t* own, const std::uint8_t* arriving) {
    std::uint32_t overflows = 0;
    for (std::size_t i = 0; i < wire::kBlockElements; ++i) {
        const auto left = static_cast<std::uint32_t>(own[i]);
        const auto right = packet::load<std::uint32_t>(arriving + 4 * i);
        const std::uint32_t sum = left + right;
        // A sum overflows where its sign differs from that of both operands.
        overflows += ((left ^ sum) & (right ^ sum)) >> 31;
        own[i] = static_cast<std::int32_t>(sum);
    }
    return overflows;
}

template <typename Number, typename Choose>
void choose(std::int32_t* own, const std::uint8_t* arriving, Choose better) {
    for (std::size_t i = 0; i < wire::kBlockElements; ++i) {
        const auto left = static_cast<Number>(own[i]);
        const auto right = packet::load<Number>(arriving + 4 * i);
        own[i] = static_cast<std::int32_t>(better(right, left) ? right : left);
    }
}

}  // namespace

std::size_t merge(wire::Opcode opcode, std::int32_t* own, const std::uint8_t* arriving) {
    switch (opcode) {
        case wire::Opcode::Sum:
            return add(own, arriving);
        case wire::Opcode::Max:
            choose<std::int32_t>(own, arriving, [](auto a, auto b) { return a > b; });
            return 0;
        case wire::Opcode::Min:
            choose<std::int32_t>(own, arriving, [](auto a, auto b) { return a < b; });
            return 0;
        case wire::Opcode::Umin:
            choose<std::uint32_t>(own, arriving, [](auto a, auto b) { return a < b; });
            return 0;
    }
    return 0;
}

void take_least(std::uint32_t* words, const std::uint8_t* arriving) {
    for (std::size_t i = 0; i < wire::kLanesMax; ++i) {
        words[i] = std::min(words[i], packet::load<std::uint32_t>(arriving + 4 * i));
    }
}

}  // namespace afflux::engine
