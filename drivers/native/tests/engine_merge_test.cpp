// Blocks are summed alike with every instruction set, at every offset in memory, and every addition
// that leaves the range of int32 is counted.
#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "engine/merge.hpp"
#include "tests/check.hpp"

using namespace afflux;

namespace {

using Block = std::array<std::int32_t, wire::kBlockElements>;

// Numbers of all sizes, many near the limits.
std::int32_t draw_element(std::mt19937& draw) {
    const std::uint32_t bits = draw();
    switch (bits % 4) {
        case 0:
            return static_cast<std::int32_t>(0x7FFF'FFFF - bits % 64);
        case 1:
            return static_cast<std::int32_t>(0x8000'0000 + bits % 64);
        case 2:
            return static_cast<std::int32_t>(bits % 100) - 50;
        default:
            return static_cast<std::int32_t>(draw());
    }
}

void test_all_adders_agree() {
    std::mt19937 draw(1);
    std::vector<std::uint8_t> memory(wire::kBlockBytes + 64);
    for (int round = 0; round < 5000; ++round) {
        Block own, arriving, expected;
        std::size_t overflows = 0;
        for (std::size_t i = 0; i < own.size(); ++i) {
            own[i] = draw_element(draw);
            arriving[i] = draw_element(draw);
            const std::int64_t sum = std::int64_t{own[i]} + arriving[i];
            expected[i] = static_cast<std::int32_t>(static_cast<std::uint64_t>(sum));
            overflows += sum != expected[i];
        }
        std::uint8_t* at = memory.data() + draw() % 64;
        std::memcpy(at, arriving.data(), wire::kBlockBytes);
        for (const engine::Adder& adder : engine::adders()) {
            Block sums = own;
            CHECK(adder.add(sums.data(), at) == overflows);
            CHECK(sums == expected);
        }
        CHECK(engine::merge(wire::Opcode::Sum, own.data(), at) == overflows);
        CHECK(own == expected);
    }
}

}  // namespace

int main() {
    test_all_adders_agree();
}
