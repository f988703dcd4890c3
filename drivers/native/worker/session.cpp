#include "worker/session.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace afflux::worker {
namespace {

using packet::Header;

void require(const char* what, std::size_t value, std::size_t most) {
    if (1 <= value && value <= most) return;
    throw std::invalid_argument("a job has 1 to " + std::to_string(most) + " " + what + ", not " +
                                std::to_string(value));
}

const Place& checked(const Place& place) {
    place.check();
    return place;
}

}  // namespace

void Place::check() const {
    require("workers", workers, wire::kWorkersMax);
    require("lanes", lanes, wire::kLanesMax);
    require("slots", slots, 65536);
    require("ranks", ranks, wire::kWorkersMax);
    if (worker >= workers || rank >= ranks) throw std::invalid_argument("no place in the job");
}

Session::Session(const Place& given, double cap) : place(checked(given)), trip(cap) {
    slots.reserve(place.slots);
    for (std::size_t slot = 0; slot < place.slots; ++slot) {
        slots.emplace_back(static_cast<wire::Slot>(slot), place.first_round, place.lanes);
    }
}

std::array<std::uint8_t, wire::kUdpPayloadMin> Session::join_packet() const {
    std::array<std::uint8_t, wire::kUdpPayloadMin> packet;
    packet.fill(0xFF);
    packet::store_header(packet.data(), packet::join_header(place.job, place.worker, place.key));
    return packet;
}

Octets Session::probe(Slot& slot, wire::OpcodeDtype opcode_dtype) const {
    slot.probe.fill(0xFF);
    const Header header{
        .version_type = packet::version_type(wire::Type::Probe),
        .opcode_dtype = opcode_dtype,
        .job = place.job,
        .worker = place.worker,
        .slot = slot.number,
        .present = 0,
        .round = slot.round,
        .key = place.key,
        .operation = static_cast<wire::Operation>(number),
    };
    packet::store_header(slot.probe.data(), header);
    return {slot.probe.data(), slot.probe.size()};
}

}  // namespace afflux::worker
