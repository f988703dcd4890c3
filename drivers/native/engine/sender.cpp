#include "engine/sender.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "engine/number_opcode.hpp"
#include "packet/partial_dtype.hpp"

namespace afflux::engine {
namespace {

// The header of a packet with a version's content, without job, worker and key.
packet::Header header_of(const Version& version, wire::Slot slot, wire::Round round,
                         wire::Type type) {
    return {
        .version_type = packet::version_type(version.conflict ? wire::Type::Conflict : type),
        .opcode_dtype = version.opcode_dtype,
        .job = 0,
        .worker = 0,
        .slot = slot,
        .present = version.present,
        .round = round,
        .key = 0,
        .operation = version.operation,
    };
}

// A worker that has not joined cannot contribute, so no round is complete without it.
const packet::Endpoint& joined(const Job& job, wire::Worker worker) {
    const auto& peer = job.peers[worker];
    if (!peer) throw std::logic_error("a round is complete without all its workers having joined");
    return *peer;
}

}  // namespace

void Sender::completed(const Job& job, wire::Slot slot, wire::Round round) {
    packet::Header header = result_header(job, slot, round);
    sink_->open(slots_.body_of(job.slot_base + slot, round & 1), false);
    if (job.group) {
        header.worker = wire::kEveryone;
        header.key = job.group_key;
        sink_->send(local_, *job.group, header);
        return;
    }
    for (unsigned worker = 0; worker < job.workers; ++worker) {
        header.worker = static_cast<wire::Worker>(worker);
        sink_->send(local_, joined(job, header.worker), header);
    }
}

void Sender::replay(const Job& job, wire::Slot slot, wire::Round round, wire::Worker worker) {
    packet::Header header = result_header(job, slot, round);
    header.worker = worker;
    sink_->open(slots_.body_of(job.slot_base + slot, round & 1), false);
    sink_->send(local_, joined(job, worker), header);
}

packet::Header Sender::result_header(const Job& job, wire::Slot slot, wire::Round round) const {
    const Version& version = slots_[job.slot_base + slot].versions[round & 1];
    packet::Header header = header_of(version, slot, round, wire::Type::Result);
    header.job = job.number;
    header.key = job.key;
    return header;
}

void Sender::partial_sum(const Job& job, wire::Slot slot, wire::Round round) {
    const Parent& parent = job.parent.value();
    const std::size_t in_pool = job.slot_base + slot;
    const std::size_t v = round & 1;
    const Version& version = slots_[in_pool].versions[v];
    packet::Header header = header_of(version, slot, round, wire::Type::Data);
    header.job = parent.job;
    header.key = parent.key;
    header.worker = parent.worker;
    const NumberOpcode opcode(version.opcode_dtype);
    if (opcode.of_numbers() && opcode.sums() && !version.conflict) {
        header.opcode_dtype = opcode.of_partial(parent.partial_bits);
        const std::size_t block_bytes = packet::block_bytes(header.opcode_dtype);
        sink_->open(slots_.partial_sums_of(in_pool, block_bytes), false);
    } else {
        sink_->open(slots_.body_of(in_pool, v), false);
    }
    sink_->send(parent_side(job), parent.endpoint, header);
}

void Sender::join_parent(const Job& job) {
    const Parent& parent = job.parent.value();
    const packet::Header header = packet::join_header(parent.job, parent.worker, parent.key);
    const std::array<std::uint32_t, wire::kLanesMax> words{};
    open_words(words);
    sink_->send(parent_side(job), parent.endpoint, header);
}

void Sender::answer(const packet::Header& header, const packet::Endpoint& peer, wire::Type type,
                    std::initializer_list<std::uint32_t> words) {
    packet::Header answer = header;
    answer.version_type = packet::version_type(type);
    answer.present = 0;
    std::array<std::uint32_t, wire::kLanesMax> all{};
    std::copy(words.begin(), words.end(), all.begin());
    open_words(all);
    sink_->send(local_, peer, answer);
}

void Sender::open_words(const std::array<std::uint32_t, wire::kLanesMax>& words) {
    Body body;
    body.append(words.data(), wire::kLookaheadBytes);
    sink_->open(body, true);
}

packet::Endpoint Sender::parent_side(const Job& job) const {
    packet::Endpoint side = local_;
    side.port = static_cast<std::uint16_t>(local_.port + 1 + job.number);
    return side;
}

}  // namespace afflux::engine
