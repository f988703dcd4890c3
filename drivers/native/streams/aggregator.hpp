// The sums of ranks that all send to this end, which has no tensor of its own.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "carriers/socket_lane.hpp"
#include "streams/driver.hpp"
#include "streams/exchange.hpp"
#include "streams/own_sockets.hpp"
#include "streams/wake.hpp"

namespace afflux::streams {

// One group's aggregator. The ranks have streams to each other too, over which they compare their
// calls; here an operation begins with the first call of any of them. Each lane goes its own way,
// with a thread of its own. Results stay in memory for a few pieces, until all ranks have them.
class Aggregator {
  public:
    // The sockets by lane, then by rank: connected streams, without blocking; they are the
    // aggregator's from now on. `sources`: how many ranks each one stands for; `names`: the ranks'
    // numbers in messages.
    Aggregator(const std::vector<std::vector<int>>& sockets, const std::vector<int>& sources,
               const std::vector<int>& names);

    // Serves until all ranks have ended, or `stop`. Once. Returns why the group has failed; empty
    // if it has not.
    std::string run();
    // Any thread.
    void stop();

    std::uint64_t operations() const { return operations_.load(std::memory_order_relaxed); }
    // Of the tensors that were summed.
    std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

  private:
    // There is memory for so many pieces of results. Ranks contribute at most `kPiecesAhead` pieces
    // more than they have results of, and less than as many again are on their way to each.
    static constexpr std::size_t kRing = 2 * kPiecesAhead;

    struct Lane {
        std::unique_ptr<carriers::SocketLane> carrier;
        std::unique_ptr<Exchange> exchange;
        std::unique_ptr<std::array<std::byte, kRing * kPieceBytes>> results;
        std::array<std::optional<Reduction>, kDtypes * kOps> reductions;
        Wake wake;
    };

    void begin(std::size_t lane, const Signature& signature, std::uint32_t operation);
    std::size_t bytes_of(const Signature& signature) const;
    void serve(std::size_t lane);
    void serve_lane(std::size_t lane);

    const OwnSockets sockets_;
    const std::size_t ranks_;
    std::vector<int> sources_;  // empty if each rank stands for itself
    const int contributors_;
    std::vector<Lane> lanes_;
    WaitCounts waits_;
    std::atomic<bool> stopping_{false};
    std::mutex failure_mutex_;
    std::string failure_;
    std::atomic<std::uint64_t> operations_{0}, bytes_{0};
};

}  // namespace afflux::streams
