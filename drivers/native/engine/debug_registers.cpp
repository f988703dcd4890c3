// The registers that show jobs, slots and workers to a person. Those of what does not exist read as
// 0.
#include "engine/engine.hpp"

namespace afflux::engine {
namespace {

std::uint32_t show(const Version& version) {
    return static_cast<std::uint32_t>(version.held) << 17 |
           static_cast<std::uint32_t>(version.conflict) << 16 | version.present;
}

std::uint32_t show_phase(const SlotState& slot) {
    // A slot that has never belonged to a job is not full, although no worker is missing.
    const bool full = slot.full() && slot.everyone != 0;
    return static_cast<std::uint32_t>(full) | static_cast<std::uint32_t>(slot.waiting) << 1;
}

std::uint32_t number_of(const std::uint8_t* first, const std::uint8_t* last) {
    std::uint32_t number = 0;
    for (; first != last; ++first) number = number << 8 | *first;
    return number;
}

}  // namespace

std::uint32_t Engine::look(Address address) const {
    switch (address) {
        case Address::JobEnabled:
        case Address::JobParentJoined:
            return look_at_job(address);
        case Address::DebugPeerMacLow:
        case Address::DebugPeerMacHigh:
        case Address::DebugPeerAddress:
        case Address::DebugPeerPort:
            return look_at_peer(address);
        default:
            return look_at_slot(address);
    }
}

std::uint32_t Engine::look_at_job(Address address) const {
    const std::uint32_t number = registers_[Address::JobIndex];
    const Job* job = shares_[0]->core.job_at(number);
    if (job == nullptr) return 0;
    // The parent answers the core that has the job's slots.
    const Job* owned = shares_[job->owner(0)]->core.job_at(number);
    return address == Address::JobEnabled || owned->parent_joined ? 1 : 0;
}

std::uint32_t Engine::look_at_slot(Address address) const {
    const std::uint32_t number = registers_[Address::DebugSlot];
    if (number >= slots_.size()) return 0;
    const SlotState& slot = slots_[number];
    switch (address) {
        case Address::DebugRound:
            return slot.round;
        case Address::DebugSeenLow:
            return static_cast<std::uint32_t>(slot.seen);
        case Address::DebugSeenHigh:
            return static_cast<std::uint32_t>(slot.seen >> 32);
        case Address::DebugPhase:
            return show_phase(slot);
        case Address::DebugVersion0:
            return show(slot.versions[0]);
        case Address::DebugVersion1:
            return show(slot.versions[1]);
        default:
            return 0;
    }
}

std::uint32_t Engine::look_at_peer(Address address) const {
    const std::uint32_t chosen = registers_[Address::DebugWorker];
    const std::uint32_t number = chosen / 256;
    const std::uint32_t worker = chosen % 256;
    const Job* job = shares_[0]->core.job_at(number);
    if (job == nullptr || worker >= job->workers) return 0;
    const std::optional<packet::Endpoint>& peer = job->peers[worker];
    if (!peer) return 0;
    const std::uint8_t* mac = peer->mac.data();
    switch (address) {
        case Address::DebugPeerMacLow:
            return number_of(mac + 2, mac + 6);
        case Address::DebugPeerMacHigh:
            return 1U << 16 | number_of(mac, mac + 2);
        case Address::DebugPeerAddress:
            return peer->address;
        case Address::DebugPeerPort:
            return peer->port;
        default:
            return 0;
    }
}

}  // namespace afflux::engine
