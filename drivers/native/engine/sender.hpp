// What an aggregator sends: results, partial sums, short answers (protocol, sections 5.4 to 5.6).
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "engine/job.hpp"
#include "engine/send_queue.hpp"
#include "engine/slots.hpp"
#include "packet/frame.hpp"

namespace afflux::engine {

class Sender {
  public:
    explicit Sender(const SlotPool& slots) : slots_(slots) {}

    // The engine's own endpoint, from now on.
    void move_to(const packet::Endpoint& local) { local_ = local; }

    // The result of a round that has just become complete: to the group, or to each worker.
    void completed(const Job& job, wire::Slot slot, wire::Round round);

    // The result of a complete round, again, to one worker.
    void replay(const Job& job, wire::Slot slot, wire::Round round, wire::Worker worker);

    // A full round, up to the job's parent.
    void partial_sum(const Job& job, wire::Slot slot, wire::Round round);

    // Asks the job's parent to let it join.
    void join_parent(const Job& job);

    // Answers a packet of `peer` with its own header; the words not given are 0.
    void answer(const packet::Header& header, const packet::Endpoint& peer, wire::Type type,
                std::initializer_list<std::uint32_t> words);

    SendQueue& queue() { return queue_; }

  private:
    // The header of a result, but for the worker that it is for.
    packet::Header result_header(const Job& job, wire::Slot slot, wire::Round round) const;

    // From where a job speaks to its parent.
    packet::Endpoint parent_side(const Job& job) const;

    const SlotPool& slots_;
    packet::Endpoint local_;
    SendQueue queue_;
};

}  // namespace afflux::engine
