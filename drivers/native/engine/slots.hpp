// The pool of slots, each with its round and its two versions (protocol, section 5.1).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/job.hpp"
#include "engine/number_sums.hpp"
#include "engine/packet_sink.hpp"
#include "engine/zero_pages.hpp"
#include "packet/frame.hpp"

namespace afflux::engine {

// The state of a version, besides its words and blocks.
struct Version {
    bool held = false;
    bool conflict = false;
    wire::Present present = 0;
    wire::Operation operation = 0;
    wire::OpcodeDtype opcode_dtype = 0;  // of numbers, not of their partial sums
    bool numbers = false;                // a packet of numbers has come
};

// In a cache line of its own, as neighbours may belong to different threads.
struct alignas(64) SlotState {
    wire::Round round = 0;       // R
    bool waiting = false;        // for the parent's result
    std::uint64_t seen = 0;      // bitmap of the workers whose contribution to R has come
    std::uint64_t everyone = 0;  // bitmap of all workers of the job
    std::array<Version, 2> versions{};

    bool full() const { return seen == everyone; }
    bool complete() const { return full() && !waiting; }
};

// A packet for a slot: its header, and where its words and blocks are.
struct Packet {
    packet::Header header;
    const std::uint8_t* words;

    const std::uint8_t* blocks() const { return words + wire::kLookaheadBytes; }
};

// Threads may use different slots at the same time.
class SlotPool {
  public:
    SlotPool(std::size_t slots, std::size_t lanes);

    std::size_t size() const { return states_.size(); }
    SlotState& operator[](std::size_t slot) { return states_[slot]; }
    const SlotState& operator[](std::size_t slot) const { return states_[slot]; }

    // Sets the initial state for a job whose rounds start at first_round.
    void reset(std::size_t slot, wire::Round first_round, std::uint64_t everyone);

    // Opens the packet's round with the packet's header and words; its blocks are yet to be added.
    void open(std::size_t slot, const Packet& packet);

    // Merges the words of a packet that did not open the round into those of R.
    void merge_words(std::size_t slot, const Packet& packet);

    // Merges the packet's blocks into those of R. Returns the number of additions that left the
    // range of int32.
    std::size_t add(std::size_t slot, const Packet& packet);

    // Turns what has been added to R, which all of so many workers have contributed to, into the
    // result's blocks, or into those that go up to a parent if there is one. Blocks of integers are
    // that already.
    void reduce(std::size_t slot, unsigned workers, const Parent* parent);

    // Replaces R's partial sum by the parent's result, for which the slot no longer waits.
    void take(std::size_t slot, const Packet& packet);

    // Where words and present blocks of a version are, as in a packet.
    Body body_of(std::size_t slot, std::size_t version) const;

    // The same of R's partial sums of numbers.
    Body partial_sums_of(std::size_t slot, std::size_t block_bytes) const;

  private:
    std::int32_t* body(std::size_t slot, std::size_t version) const {
        return bodies_ + (2 * slot + version) * body_words_;
    }

    void add_numbers(std::size_t slot, const Packet& packet);
    void go_up(std::size_t slot, unsigned workers, int float32_bits);

    // The exponent that the round before R has agreed on for a lane.
    int exponent(std::size_t slot, int lane) const {
        return 255 - (body(slot, ~states_[slot].round & 1)[lane] & 0xFF);
    }

    std::vector<SlotState> states_;
    std::size_t body_words_;
    ZeroPages memory_;
    // For each slot and version 16 words, then the blocks of all lanes: in a packet's order.
    std::int32_t* bodies_;
    NumberSums numbers_;
};

}  // namespace afflux::engine
