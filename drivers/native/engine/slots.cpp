#include "engine/slots.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "engine/merge.hpp"
#include "engine/number_opcode.hpp"
#include "sums/environment.hpp"
#include "sums/extreme.hpp"

namespace afflux::engine {
namespace {

std::int32_t* block(std::int32_t* body, int lane) {
    return body + wire::kLanesMax + static_cast<std::size_t>(lane) * wire::kBlockElements;
}

// Calls `visit` with each lane in the bitmap and the packet's block for it.
template <typename Visit>
void each_block(wire::Present present, const std::uint8_t* blocks, Visit visit,
                std::size_t block_bytes = wire::kBlockBytes) {
    for (unsigned left = present; left != 0; left &= left - 1, blocks += block_bytes) {
        visit(std::countr_zero(left), blocks);
    }
}

}  // namespace

SlotPool::SlotPool(std::size_t slots, std::size_t lanes)
    : states_(slots),
      body_words_(wire::kLanesMax + lanes * wire::kBlockElements),
      memory_(2 * slots * body_words_ * sizeof(std::int32_t)),
      bodies_(static_cast<std::int32_t*>(memory_.data())),
      numbers_(slots, lanes) {}

void SlotPool::reset(std::size_t slot, wire::Round first_round, std::uint64_t everyone) {
    states_[slot] = {.round = first_round - 1, .seen = everyone, .everyone = everyone};
    // The exponents of another job's blocks.
    for (const std::size_t v : {0, 1}) std::memset(body(slot, v), 0, wire::kLookaheadBytes);
}

void SlotPool::open(std::size_t slot, const Packet& packet) {
    const packet::Header& header = packet.header;
    const std::size_t v = header.round & 1;
    SlotState& state = states_[slot];
    state.round = header.round;
    state.seen = 0;
    state.versions[v] = {
        .held = true,
        .operation = header.operation,
        .opcode_dtype = NumberOpcode(header.opcode_dtype).of_whole(),
    };
    std::memcpy(body(slot, v), packet.words, wire::kLookaheadBytes);
    numbers_.open(slot);
}

void SlotPool::merge_words(std::size_t slot, const Packet& packet) {
    std::int32_t* own = body(slot, states_[slot].round & 1);
    take_least(reinterpret_cast<std::uint32_t*>(own), packet.words);
}

std::size_t SlotPool::add(std::size_t slot, const Packet& packet) {
    const std::size_t v = states_[slot].round & 1;
    Version& version = states_[slot].versions[v];
    if (NumberOpcode(packet.header.opcode_dtype).of_numbers() ||
        NumberOpcode(version.opcode_dtype).of_numbers()) {
        add_numbers(slot, packet);
        return 0;
    }
    const auto opcode = static_cast<wire::Opcode>(packet.header.opcode());
    std::int32_t* own = body(slot, v);
    std::size_t overflows = 0;
    each_block(packet.header.present, packet.blocks(), [&](int lane, const std::uint8_t* arriving) {
        if (version.present >> lane & 1) {
            overflows += merge(opcode, block(own, lane), arriving);
        } else {
            std::memcpy(block(own, lane), arriving, wire::kBlockBytes);
        }
    });
    version.present |= packet.header.present;
    return overflows;
}

// Of a conflict the blocks mean nothing. They become zeros, as the memory may hold another job's.
void SlotPool::add_numbers(std::size_t slot, const Packet& packet) {
    const std::size_t v = states_[slot].round & 1;
    Version& version = states_[slot].versions[v];
    const NumberOpcode opcode(packet.header.opcode_dtype);
    const unsigned present =
        std::exchange(version.present, version.present | packet.header.present);
    version.numbers = true;
    if (opcode.of_whole() != version.opcode_dtype) return;
    const sums::Environment environment;
    std::int32_t* own = body(slot, v);
    const auto add = [&](int lane, const std::uint8_t* arriving) {
        if (opcode.sums()) {
            numbers_.add(environment, slot, lane, opcode, exponent(slot, lane), arriving);
        } else {
            // With itself the first one has its NaN made the one that comes back.
            if ((present >> lane & 1) == 0)
                std::memcpy(block(own, lane), arriving, wire::kBlockBytes);
            sums::extreme(opcode.dtype(), opcode.greatest(), block(own, lane), arriving);
        }
    };
    each_block(packet.header.present, packet.blocks(), add,
               packet::block_bytes(packet.header.opcode_dtype));
}

void SlotPool::reduce(std::size_t slot, unsigned workers, const Parent* parent) {
    const std::size_t v = states_[slot].round & 1;
    const Version& version = states_[slot].versions[v];
    if (!version.numbers) return;
    if (version.conflict) {
        std::fill_n(body(slot, v) + wire::kLanesMax, body_words_ - wire::kLanesMax, 0);
        return;
    }
    const NumberOpcode opcode(version.opcode_dtype);
    if (!opcode.sums()) return;
    if (parent != nullptr) return go_up(slot, workers, parent->partial_bits);
    const sums::Environment environment;
    for (unsigned left = version.present; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        numbers_.round(environment, slot, lane, opcode, workers, block(body(slot, v), lane));
    }
}

void SlotPool::go_up(std::size_t slot, unsigned workers, int float32_bits) {
    const Version& version = states_[slot].versions[states_[slot].round & 1];
    const NumberOpcode opcode(NumberOpcode(version.opcode_dtype).of_partial(float32_bits));
    const packet::PartialDtype& dtype = *opcode.partial();
    const sums::Environment environment;
    std::uint8_t* place = numbers_.going_up(slot);
    for (unsigned left = version.present; left != 0; left &= left - 1) {
        const int lane = std::countr_zero(left);
        const sums::Partial to{dtype.of, dtype.bits, exponent(slot, lane)};
        numbers_.go_up(environment, slot, lane, to, workers, place);
        place += dtype.block_bytes();
    }
}

void SlotPool::take(std::size_t slot, const Packet& packet) {
    const std::size_t v = states_[slot].round & 1;
    Version& version = states_[slot].versions[v];
    version.present = packet.header.present;
    version.conflict = packet.header.type() == wire::Type::Conflict;
    std::int32_t* own = body(slot, v);
    std::memcpy(own, packet.words, wire::kLookaheadBytes);
    each_block(version.present, packet.blocks(), [&](int lane, const std::uint8_t* arriving) {
        std::memcpy(block(own, lane), arriving, wire::kBlockBytes);
    });
    states_[slot].waiting = false;
}

Body SlotPool::body_of(std::size_t slot, std::size_t version) const {
    std::int32_t* own = body(slot, version);
    Body found;
    // Lanes 0 to k - 1, the usual case, are one piece with the words; others are runs of lanes.
    unsigned left = states_[slot].versions[version].present;
    const int first = std::countr_one(left);
    found.append(own, wire::kLookaheadBytes + static_cast<std::size_t>(first) * wire::kBlockBytes);
    left = left >> first << first;
    while (left != 0) {
        const int lane = std::countr_zero(left);
        const int run = std::countr_one(left >> lane);
        found.append(block(own, lane), static_cast<std::size_t>(run) * wire::kBlockBytes);
        left = left >> (lane + run) << (lane + run);
    }
    return found;
}

Body SlotPool::partial_sums_of(std::size_t slot, std::size_t block_bytes) const {
    const std::size_t v = states_[slot].round & 1;
    const auto blocks = static_cast<std::size_t>(std::popcount(states_[slot].versions[v].present));
    Body found;
    found.append(body(slot, v), wire::kLookaheadBytes);
    found.append(numbers_.going_up(slot), blocks * block_bytes);
    return found;
}

}  // namespace afflux::engine
