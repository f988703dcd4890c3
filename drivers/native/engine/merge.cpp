#include "engine/merge.hpp"

#include <algorithm>

#include "packet/octets.hpp"

namespace afflux::engine {
namespace {

// One loop, which the compiler writes for each instruction set below. All that it calls is part of
// it, as a function of its own would be one for all sets.
[[gnu::always_inline]] inline std::size_t add_any(std::int32_t* __restrict own,
                                                  const std::uint8_t* __restrict arriving) {
    std::uint32_t overflows = 0;
    for (std::size_t i = 0; i < wire::kBlockElements; ++i) {
        std::uint32_t left, right;
        __builtin_memcpy(&left, own + i, sizeof left);
        __builtin_memcpy(&right, arriving + 4 * i, sizeof right);
        const std::uint32_t sum = left + right;
        // A sum overflows where its sign differs from that of both operands.
        overflows += ((left ^ sum) & (right ^ sum)) >> 31;
        __builtin_memcpy(own + i, &sum, sizeof sum);
    }
    return overflows;
}

std::size_t add_default(std::int32_t* own, const std::uint8_t* arriving) {
    return add_any(own, arriving);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] std::size_t add_avx2(std::int32_t* own, const std::uint8_t* arriving) {
    return add_any(own, arriving);
}

[[gnu::target("avx512f")]] std::size_t add_avx512(std::int32_t* own, const std::uint8_t* arriving) {
    return add_any(own, arriving);
}
#endif

template <typename Number, typename Choose>
void choose(std::int32_t* own, const std::uint8_t* arriving, Choose better) {
    for (std::size_t i = 0; i < wire::kBlockElements; ++i) {
        const auto left = static_cast<Number>(own[i]);
        const auto right = packet::load<Number>(arriving + 4 * i);
        own[i] = static_cast<std::int32_t>(better(right, left) ? right : left);
    }
}

}  // namespace

std::vector<Adder> adders() {
    std::vector<Adder> found{{"default", add_default}};
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) found.push_back({"avx2", add_avx2});
    if (__builtin_cpu_supports("avx512f")) found.push_back({"avx512", add_avx512});
#endif
    return found;
}

std::size_t merge(wire::Opcode opcode, std::int32_t* own, const std::uint8_t* arriving) {
    switch (opcode) {
        case wire::Opcode::Sum: {
            static const Adder best = adders().back();
            return best.add(own, arriving);
        }
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
