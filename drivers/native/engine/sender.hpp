// Composes the packets that an aggregator sends (protocol, sections 5.4 to 5.6).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "engine/job.hpp"
#include "engine/packet_sink.hpp"
#include "engine/slots.hpp"
#include "packet/frame.hpp"

namespace afflux::engine {

class Sender {
  public:
    explicit Sender(const SlotPool& slots) : slots_(slots) {}

    // Sets the engine's own endpoint.
    void move_to(const packet::Endpoint& local) { local_ = local; }

    // Sends the result of a round that has just become complete to the group, or to each worker.
    void completed(const Job& job, wire::Slot slot, wire::Round round);

    // Sends the result of a complete round to one worker again.
    void replay(const Job& job, wire::Slot slot, wire::Round round, wire::Worker worker);

    // Sends a full round up to the job's parent.
    void partial_sum(const Job& job, wire::Slot slot, wire::Round round);

    // Asks the job's parent to let it join.
    void join_parent(const Job& job);

    // Answers a packet of `peer` with that packet's header; words that are not given are 0.
    void answer(const packet::Header& header, const packet::Endpoint& peer, wire::Type type,
                std::initializer_list<std::uint32_t> words);

    // Where packets go from now on; must live as long. Returns where they went before.
    PacketSink* send_to(PacketSink* sink) { return std::exchange(sink_, sink); }

  private:
    // The header of a result, without the receiving worker.
    packet::Header result_header(const Job& job, wire::Slot slot, wire::Round round) const;

    void open_words(const std::array<std::uint32_t, wire::kLanesMax>& words);

    // The endpoint from which a job sends to its parent.
    packet::Endpoint parent_side(const Job& job) const;

    const SlotPool& slots_;
    packet::Endpoint local_;
    PacketSink* sink_ = nullptr;
};

}  // namespace afflux::engine
