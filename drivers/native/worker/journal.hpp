// A worker's note of its calls' results, for ranks that go on without their aggregators.
//
// Results replace the contributions block by block, so ranks that have lost their aggregators must
// know which blocks of a tensor are results, and whoever has one lets the others have it. A rank
// that has ended a call has given its tensor back; another one may still lack the last result of
// each slot, as a round is complete only when all have the one before it. These are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "contract/wire.hpp"

namespace afflux::worker {

// Of all lines of a worker, whose parts of a call share a tensor. Used by one thread at a time.
class Journal {
  public:
    // A call begins whose result goes to so many bytes.
    void begin(void* result, std::size_t bytes);

    // A result of the call has come: all ranks have begun it, so all have ended the one before.
    void heard();

    // A block's result is in its place.
    void take(std::size_t block) { taken_[block] = 1; }
    void take_all();

    // Another rank may lack a block that has been taken, or all of them, when the call is over
    // here.
    void keep(std::size_t block);
    void keep_all();

    // Of these that have come together at last all are taken and kept, and no others.
    void keep_only(const std::size_t* blocks, std::size_t count);

    // The call has come to its good end; its tensor may change from now on.
    void end();

    std::uint64_t over() const { return over_; }
    bool running() const { return running_; }
    void* result() const { return result_; }
    std::size_t bytes() const { return bytes_; }
    // A byte for each block of the call that is running: 1 if it is a result.
    const std::vector<std::uint8_t>& taken() const { return taken_; }
    // Blocks that were taken in the call that was over last.
    std::size_t taken_before() const { return taken_before_; }
    // Blocks of that call which another rank may lack, and what is in them, each in a block's room.
    // Of a call that is running and of which nothing has come they are still those before it.
    const std::vector<std::uint64_t>& kept() const { return kept_; }
    const std::vector<std::uint8_t>& contents() const { return contents_; }

  private:
    void* result_ = nullptr;
    std::size_t bytes_ = 0;
    std::uint64_t over_ = 0;
    bool running_ = false;
    bool heard_ = false;
    std::vector<std::uint8_t> taken_;
    std::size_t taken_before_ = 0;
    std::vector<std::uint64_t> kept_;
    std::vector<std::uint8_t> contents_;
};

}  // namespace afflux::worker
