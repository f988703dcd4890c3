// The sums of numbers of the slots' open rounds, until they are rounded (protocol,
// section 8.3).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "contract/wire.hpp"
#include "engine/number_opcode.hpp"
#include "engine/zero_pages.hpp"
#include "packet/partial_dtype.hpp"
#include "sums/environment.hpp"
#include "sums/sum_block.hpp"

namespace afflux::engine {

// Threads may use different slots at the same time.
class NumberSums {
  public:
    NumberSums(std::size_t slots, std::size_t lanes)
        : lanes_(lanes),
          workers_(slots * sizeof(Workers)),
          blocks_(slots * lanes * sizeof(sums::SumBlock)),
          partials_(slots * lanes * wire::kLongestBlockBytes) {}

    // Begins a round.
    void open(std::size_t slot) { workers(slot).fill(0); }

    // Adds a worker's block, of the exponent that is agreed for the lane.
    void add(const sums::Environment& environment, std::size_t slot, int lane, NumberOpcode opcode,
             int exponent, const std::uint8_t* arriving) {
        sums::SumBlock& sum = block(slot, lane);
        const bool first = workers(slot)[static_cast<std::size_t>(lane)]++ == 0;
        if (opcode.partial() != nullptr) {
            const sums::Partial from{opcode.dtype(), opcode.partial()->bits, exponent};
            first ? sum.open(environment, from, arriving) : sum.add(environment, from, arriving);
        } else if (first) {
            sum.open(environment, opcode.dtype(), arriving);
        } else {
            sum.add(environment, arriving);
        }
    }

    // Writes the result of a lane to which workers have contributed, of so many.
    void round(const sums::Environment& environment, std::size_t slot, int lane,
               NumberOpcode opcode, unsigned of, void* out) const {
        const bool all = workers(slot)[static_cast<std::size_t>(lane)] == of;
        block(slot, lane).round(environment, opcode.scale(), all, out);
    }

    // Writes the sums of a lane, to which workers have contributed, of so many, as they go up.
    void go_up(const sums::Environment& environment, std::size_t slot, int lane,
               const sums::Partial& to, unsigned of, std::uint8_t* place) const {
        const bool all = workers(slot)[static_cast<std::size_t>(lane)] == of;
        block(slot, lane).partial(environment, to, all, place);
    }

    // Where a slot's blocks that go up are, one after the other.
    std::uint8_t* going_up(std::size_t slot) const {
        return static_cast<std::uint8_t*>(partials_.data()) +
               slot * lanes_ * wire::kLongestBlockBytes;
    }

  private:
    // By lane, how many workers have sent a block.
    using Workers = std::array<std::uint8_t, wire::kLanesMax>;

    Workers& workers(std::size_t slot) const {
        return static_cast<Workers*>(workers_.data())[slot];
    }
    sums::SumBlock& block(std::size_t slot, int lane) const {
        return static_cast<sums::SumBlock*>(
            blocks_.data())[slot * lanes_ + static_cast<std::size_t>(lane)];
    }

    std::size_t lanes_;
    ZeroPages workers_;
    ZeroPages blocks_;
    ZeroPages partials_;
};

}  // namespace afflux::engine
