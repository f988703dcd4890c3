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
    std::array<std::uint64_t, kCollectives> collectives;  // operations by Collective
    std::uint64_t bytes;  // of the tensors, of the larger side where there are two
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
    // Takes the rank's place in the segment. `numbers`, the same at all ranks, is whether floats
    // are reduced as version 2 of the protocol defines it.
    Group(std::shared_ptr<Segment> segment, int rank, bool numbers = false);
    // Marks the rank as gone, so that operations that wait for it fail.
    ~Group();
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;

    int rank() const { return rank_; }
    int ranks() const { return segment_->ranks(); }

    // Begins a collective: copies a small tensor, or the first batch of a larger one, and publishes
    // what it was called with. Does not wait. The tensors must stay until the operation is over;
    // the lists that name them need not. Returns the operation's number, counted from 1. Unless the
    // requests agree at all ranks, in all but the tensors, all throw Disagreement.
    // Throws std::invalid_argument for a request that cannot be, without any effect;
    // std::logic_error if an operation is in progress, Failed.
    std::uint64_t begin(const Request& request);
    // Works and waits for up to `timeout`; true when the operation is over and the outputs hold the
    // result, false if it needs more time. If `operation` is not 0 it is the number of the one that
    // is meant, and true also if that one is over already.
    // Throws Disagreement; Failed if a rank has ended or failed the group. Then the content
    // of the outputs is undefined, and the group cannot be used any more.
    bool advance(std::chrono::nanoseconds timeout, std::uint64_t operation = 0);
    // The number of the operation in progress; 0 if none is.
    std::uint64_t in_progress() const;

    // After Disagreement: each rank's fingerprint, and its history.
    std::vector<std::uint64_t> fingerprints() const;
    std::vector<std::uint64_t> histories() const;
    // The ranks whose call differs from this one's.
    std::vector<int> differing() const;
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
    // Gives it back. No operation on it may be in progress. `discard`: this rank's slice is freed,
    // and not only with the segment.
    void release(const std::shared_ptr<Allocation>& allocation, bool discard = true);

    Statistics statistics() const;

  private:
    void check_usable() const;
    const Arithmetic& arithmetic(Dtype dtype, Op op);
    void prepare(const Request& request);
    void start(CallSignature& own);
    std::shared_ptr<Allocation> allocation_of(const std::byte* data, std::size_t bytes) const;
    CallSignature& signature(int rank) const;
    void compare();
    bool open();
    void finish();

    const std::shared_ptr<Segment> segment_;
    const int rank_;
    const bool numbers_;
    const pid_t process_;
    Phases phases_;
    mutable std::mutex mutex_;  // of begin and advance
    mutable std::mutex allocations_mutex_;
    std::vector<std::shared_ptr<Allocation>> allocations_;
    std::array<std::optional<Arithmetic>, kDtypes * kOps> arithmetics_;

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
