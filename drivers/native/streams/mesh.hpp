// Collectives among ranks that have a stream to each other.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "carriers/carrier.hpp"
#include "collectives/call.hpp"
#include "collectives/group.hpp"
#include "streams/driver.hpp"
#include "streams/exchange.hpp"
#include "streams/lane_thread.hpp"
#include "streams/own_sockets.hpp"
#include "streams/results.hpp"
#include "streams/wake.hpp"

namespace afflux::streams {

// Counts of this rank since the group was made.
struct Statistics {
    std::uint64_t operations;
    std::array<std::uint64_t, kCollectives> collectives;  // operations by Collective
    std::uint64_t bytes;       // of the tensors, of the larger side where there are two
    std::uint64_t bytes_sent;  // of them, to other ranks
    std::uint64_t blocks_present, blocks_total;  // of those that were scanned to be sent
    std::uint64_t waits, sleeps;
};

// The last results of an operation that is over, which other ranks may lack.
struct KeptResults {
    std::vector<std::uint64_t> blocks;
    std::vector<std::uint8_t> contents;  // in a block's room each
};

// One rank's end of a group. Between each two ranks there are as many streams as there are lanes,
// each of which carries a share of every larger tensor. The thread that calls `advance` does all
// the work, with others beside it if there are to be more, each with lanes of its own.
class Mesh final : public Group {
  public:
    // 50 us of 10 Gbit/s.
    static constexpr std::size_t kOneHop = std::size_t{64} << 10;
    using Carriers = std::vector<std::unique_ptr<carriers::LaneCarrier>>;

    // The sockets by lane, then by rank: connected streams, without blocking, and -1 for the own
    // one. They are the group's from now on. After those of the ranks there may be one to an
    // aggregator. `names`: the ranks' numbers in messages, in order. There are at most as many
    // threads as lanes. `one_hop` and `aggregated` are the same at all ranks, see `layout_of`.
    // `carriers`: of these lanes, if not the sockets themselves carry them.
    Mesh(int rank, const std::vector<std::vector<int>>& sockets, std::vector<int> names,
         int threads = 1, std::size_t one_hop = kOneHop, Carriers carriers = {},
         std::size_t aggregated = kAggregated);
    // Closes the streams, so that operations that wait for the rank fail.
    ~Mesh() override;

    int rank() const override { return rank_; }
    int ranks() const override { return static_cast<int>(names_.size()); }

    std::uint64_t begin(const Request& request) override;
    // Begins an operation of ranks that stand for several each; `advance` ends it. The reduction is
    // of all that are stood for, the terms of those that this rank stands for.
    void begin_piece(const Layout& layout, std::size_t bytes, const Reduction& reduction,
                     const Terms& terms, const Signature& signature);
    // Bytes from which on the aggregator owns a tensor; without one none have as many.
    std::size_t aggregated() const { return aggregated_; }
    std::size_t one_hop() const { return one_hop_; }
    // With no time it waits for nothing; `watch` then adds what to wait for in `poll`.
    bool advance(std::chrono::nanoseconds timeout, std::uint64_t operation = 0) override;
    void watch(std::vector<pollfd>& polled);
    std::uint64_t in_progress() const override;

    std::vector<std::uint64_t> fingerprints() const override;
    std::vector<std::uint64_t> histories() const override;
    std::vector<int> differing() const override;
    std::vector<int> missing() const override;
    bool waits_for_aggregator() const override;
    std::string obstacle() const override;
    // Since when the aggregator's host has acknowledged nothing; empty if it has.
    std::string aggregators_silence() const;
    // Ranks whose connection has ended. Any thread.
    std::vector<int> ended() const override;
    void fail(const std::string& text) override;
    std::string failure() const override;

    Statistics statistics() const;

    // Results of the aggregator, for ranks that go on when it ends: before the first operation they
    // say that they will. Then a call that it ends, or `leave_off`, leaves the streams between the
    // ranks open: another one may still need what this rank has sent.
    void keep_results();
    // Takes nothing any more.
    void leave_off();
    std::uint64_t over() const;
    // The result of an all-reduce that is in progress, of which the aggregator owns something;
    // empty if there is none.
    std::span<std::byte> result() const;
    // A byte for each block of it: 1 if it is a result.
    std::vector<std::uint8_t> taken() const;
    // Blocks of the operation that was over last, if the aggregator owned them, and the last
    // results of these.
    std::size_t taken_before() const;
    KeptResults kept() const;

  private:
    void check_usable() const;
    void check_failure();
    void set_failure(const std::string& text);
    void give_up();
    std::vector<int> differing_now() const;
    std::string unacknowledged_by(std::size_t member) const;
    Ranks missing_members() const;
    Ranks ranks_alone() const;
    bool run(Clock::time_point deadline, bool waits);
    void pause();
    void stop();
    std::vector<Results> results_now() const;
    void separate();
    void start(const Layout& layout, std::size_t bytes, const Reduction* reduction,
               const Terms* terms);
    int socket(std::size_t lane, int rank) const;
    void finish();

    const int rank_;
    const OwnSockets sockets_;
    const std::vector<int> names_;
    const std::size_t members_;  // ranks, and the aggregator
    const std::size_t one_hop_, aggregated_;
    const pid_t process_;
    const Wake wake_;  // ends a wait of the calling thread
    WaitCounts waits_;
    mutable std::mutex mutex_;  // of begin and advance
    Caller caller_;
    Carriers carriers_;  // by lane
    std::vector<std::unique_ptr<Exchange>> lanes_;
    std::size_t used_ = 0;  // those that carry the operation in progress, the first ones
    std::optional<Driver> driver_;
    std::vector<std::unique_ptr<LaneThread>> threads_;
    // A call's input or output, where its tensors overlap in another way than in place.
    std::vector<std::byte> spare_;
    std::byte* requested_ = nullptr;
    Call call_{};
    Signature own_{};
    bool active_ = false, broken_ = false;
    std::uint64_t operation_ = 0;  // those that are over
    bool keeps_results_ = false;
    // Of the last operation in which the aggregator owned something: its number, its bytes, by lane
    // where its parts began, and what came of them.
    std::uint64_t kept_of_ = 0;
    std::size_t kept_bytes_ = 0;
    const std::byte* kept_from_ = nullptr;
    std::vector<Results> kept_;

    mutable std::mutex failure_mutex_;
    std::string failure_;
    std::atomic<bool> failing_{false};

    struct Counters {
        std::atomic<std::uint64_t> operations{0}, bytes{0}, bytes_sent{0};
        std::atomic<std::uint64_t> blocks_present{0}, blocks_total{0};
        std::array<std::atomic<std::uint64_t>, kCollectives> collectives{};
    } counters_;
};

}  // namespace afflux::streams
