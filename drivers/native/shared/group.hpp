// All-reduces among the ranks of one host, through the memory that they share.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shared/algorithm.hpp"
#include "shared/errors.hpp"
#include "shared/phases.hpp"
#include "shared/segment.hpp"

namespace afflux::shared {

// Counts of this rank since the group was made.
struct Statistics {
    std::uint64_t operations, small, staged, one_pass;
    std::uint64_t bytes;  // of the tensors
    // Those of this rank's blocks that were scanned: for sums in the small and the staged path, not
    // in exact mode.
    std::uint64_t blocks_present, blocks_total;
    std::uint64_t waits, sleeps, wakes;
    std::uint64_t reachable_bytes;  // allocated now, in this rank's slices
};

// One rank's end of a group. One operation at a time. Calls may come from any thread, one after the
// other; `fail`, `failed`, `missing`, `ended` and `statistics` also while another one runs. In a
// process forked from the rank's every call throws Failed.
class Group {
  public:
    // Takes the rank's place in the segment.
    Group(std::shared_ptr<Segment> segment, int rank);
    // Marks the rank as gone, so that operations that wait for it fail.
    ~Group();
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;

    int rank() const { return rank_; }
    int ranks() const { return segment_->ranks(); }

    // Begins an all-reduce, in place, of `count` elements: copies a small tensor, or the first
    // batch of a larger one, and publishes what it was called with. Does not wait. `data` must stay
    // until the operation is over. `fingerprint` identifies what the rank calls; unless it is equal
    // at all ranks, all throw Disagreement. Throws std::invalid_argument for an operation that does
    // not exist, std::logic_error if one is in progress, Failed.
    void begin(void* data, std::size_t count, codec::Dtype dtype, codec::Op op,
               std::uint64_t fingerprint);
    // Works and waits for up to `timeout`; true when the operation is over and `data` holds the
    // result, false if it needs more time.
    // Throws Disagreement; Failed if a rank has ended or failed the group. Then the content
    // of `data` is undefined, and the group cannot be used any more.
    bool advance(std::chrono::nanoseconds timeout);

    // After Disagreement: each rank's fingerprint.
    std::vector<std::uint64_t> fingerprints() const;
    // Ranks for which this one waits.
    std::vector<int> missing() const;
    // Ranks that were attached and no longer are.
    std::vector<int> ended() const;
    // Makes all ranks leave their operations with Failed; the first text stays.
    void fail(const std::string& text);
    std::string failure() const;  // empty if none

    // Allocates memory for tensors that all ranks can reach, of which this rank gets its slice.
    // Collective: all ranks with the same `offset` and `bytes`, in whole pages, no offset twice.
    std::shared_ptr<Allocation> allocate(std::size_t offset, std::size_t bytes);
    // Frees it. No operation on it may be in progress.
    void release(const std::shared_ptr<Allocation>& allocation);

    Statistics statistics() const;

  private:
    void check_usable() const;
    const codec::Numbers& numbers(codec::Dtype dtype, codec::Op op);
    std::shared_ptr<Allocation> allocation_of(const std::byte* data, std::size_t bytes) const;
    CallSignature& signature(int rank) const;
    void compare();
    bool open();
    void finish();

    const std::shared_ptr<Segment> segment_;
    const int rank_;
    const pid_t process_;
    Phases phases_;
    mutable std::mutex mutex_;  // of begin and advance
    mutable std::mutex allocations_mutex_;
    std::vector<std::shared_ptr<Allocation>> allocations_;
    std::array<std::optional<codec::Numbers>, 16> numbers_;

    std::uint64_t operation_ = 0;  // number of the next one
    std::uint64_t ring_position_ = 0;
    bool spin_known_ = false;
    bool broken_ = false;

    // The operation in progress.
    bool active_ = false;
    bool opening_ = false;  // its opening phase is not over
    bool went_ahead_ = false;
    Call call_{};
    std::shared_ptr<Allocation> offered_;
    std::unique_ptr<Algorithm> algorithm_;

    BlockCounts blocks_;
    struct Counters {
        std::atomic<std::uint64_t> operations{0}, small{0}, staged{0}, one_pass{0}, bytes{0};
        std::atomic<std::uint64_t> blocks_present{0}, blocks_total{0}, reachable{0};
    } counters_;
};

}  // namespace afflux::shared
