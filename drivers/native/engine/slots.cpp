#include "engine/slots.hpp"

#include <cstring>
#include <new>

#include "engine/merge.hpp"

namespace afflux::engine {
namespace {

std::int32_t* block(std::int32_t* body, int lane) {
    return body + wire::kLanesMax + static_cast<std::size_t>(lane) * wire::kBlockElements;
}

// Calls `visit` with each lane in the bitmap and the packet's block for it.
template <typename Visit>
void each_block(wire::Present present, const std::uint8_t* blocks, Visit visit) {
    for (unsigned left = present; left != 0; left &= left - 1, blocks += wire::kBlockBytes) {
        visit(std::countr_zero(left), blocks);
    }
}

}  // namespace

SlotPool::SlotPool(std::size_t slots, std::size_t lanes)
    : states_(slots), body_words_(wire::kLanesMax + lanes * wire::kBlockElements) {
    // The kernel provides zeros page by page; most slots of a large pool are never used.
    bodies_.reset(
        static_cast<std::int32_t*>(std::calloc(2 * slots * body_words_, sizeof(std::int32_t))));
    if (!bodies_) throw std::bad_alloc();
}

void SlotPool::reset(std::size_t slot, wire::Round first_round, std::uint64_t everyone) {
    states_[slot] = {.round = first_round - 1, .seen = everyone, .everyone = everyone};
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
        .opcode_dtype = header.opcode_dtype,
    };
    std::memcpy(body(slot, v), packet.words, wire::kLookaheadBytes);
}

void SlotPool::merge_words(std::size_t slot, const Packet& packet) {
    std::int32_t* own = body(slot, states_[slot].round & 1);
    take_least(reinterpret_cast<std::uint32_t*>(own), packet.words);
}

std::size_t SlotPool::add(std::size_t slot, const Packet& packet) {
    const std::size_t v = states_[slot].round & 1;
    Version& version = states_[slot].versions[v];
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

SendQueue::Body SlotPool::result(std::size_t slot, std::size_t version, SendQueue& out) const {
    std::int32_t* own = body(slot, version);
    const unsigned present = states_[slot].versions[version].present;
    out.open();
    if ((present & (present + 1)) == 0) {
        // The usual case: lanes 0 to k-1, whose blocks are contiguous.
        const auto blocks = static_cast<std::size_t>(std::popcount(present));
        out.append(own, wire::kLookaheadBytes + blocks * wire::kBlockBytes);
        return out.close();
    }
    out.append(own, wire::kLookaheadBytes);
    for (unsigned left = present; left != 0; left &= left - 1) {
        out.append(block(own, std::countr_zero(left)), wire::kBlockBytes);
    }
    return out.close();
}

}  // namespace afflux::engine
