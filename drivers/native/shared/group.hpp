// Collectives among the ranks of one host, through the memory that they share.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "collectives/group.hpp"
#include "shared/algorithm.hpp"
#include "shared/phases.hpp"
#include "shared/segment.hpp"

namespace afflux::shared {

// Counts of this rank since the group was made.
struct Statistics {
    std::uint64_t operations, small, staged, one_pass;
    std::array<std::uint64_t, kCollectives> collectives;  // operations by Collective
    std::uint64_t bytes;  // of the tensors, of the larger side where there are two
    // Those of this rank's blocks that were scanned: for sums in the small and the staged path.
    std::uint64_t blocks_present, blocks_total;
    std::uint64_t waits, sleeps, wakes;
    std::uint64_t reachable_bytes;  // allocated now, in this rank's slices
};

// One rank's end of a group. `statistics` may be called while another call runs.
class Group final : public collectives::Group {
  public:
    // Takes the rank's place in the segment.
    Group(std::shared_ptr<Segment> segment, int rank);
    // Marks the rank as gone, so that operations that wait for it fail.
    ~Group() override;

    int rank() const override { return rank_; }
    int ranks() const override { return segment_->ranks(); }

    // Copies a small tensor, or the first batch of a larger one, and publishes what it was called
    // with.
    std::uint64_t begin(const Request& request) override;
    bool advance(std::chrono::nanoseconds timeout, std::uint64_t operation = 0) override;
    std::uint64_t in_progress() const override;

    std::vector<std::uint64_t> fingerprints() const override;
    std::vector<std::uint64_t> histories() const override;
    std::vector<int> differing() const override;
    std::vector<int> missing() const override;
    std::vector<int> ended() const override;
    void fail(const std::string& text) override;
    std::string failure() const override;

    // Allocates memory for tensors that all ranks can reach, of which this rank gets its slice.
    // Collective: all ranks with the same `offset` and `bytes`, in whole pages, no offset twice.
    std::shared_ptr<Allocation> allocate(std::size_t offset, std::size_t bytes);
    // Gives it back. No operation on it may be in progress. `discard`: this rank's slice is freed,
    // and not only with the segment.
    void release(const std::shared_ptr<Allocation>& allocation, bool discard = true);

    Statistics statistics() const;

  private:
    void check_usable() const;
    bool is_small() const;
    void start(CallSignature& own);
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
    Caller caller_;

    std::uint64_t operation_ = 0;  // number of the next one
    std::uint64_t ring_position_ = 0;
    bool spin_known_ = false;
    bool broken_ = false;

    // The operation in progress.
    bool active_ = false;
    bool opening_ = false;  // its opening phase is not over
    bool went_ahead_ = false;
    Call call_;
    std::shared_ptr<Allocation> offered_;
    std::unique_ptr<Algorithm> algorithm_;

    BlockCounts blocks_;
    struct Counters {
        std::atomic<std::uint64_t> operations{0}, small{0}, staged{0}, one_pass{0}, bytes{0};
        std::atomic<std::uint64_t> blocks_present{0}, blocks_total{0}, reachable{0};
        std::array<std::atomic<std::uint64_t>, kCollectives> collectives{};
    } counters_;
};

}  // namespace afflux::shared
