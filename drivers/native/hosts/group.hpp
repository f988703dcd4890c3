// All-reduces of hosts with several ranks each: memory within a host, streams between hosts.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "collectives/call.hpp"
#include "collectives/group.hpp"
#include "collectives/terms.hpp"
#include "hosts/stage.hpp"
#include "shared/group.hpp"
#include "streams/mesh.hpp"

namespace afflux::hosts {

using namespace collectives;

// The host of each rank.
struct Places {
    std::vector<std::vector<int>> hosts;  // the ranks of each host, in order
    int host = 0;                         // of this rank
    int index = 0;                        // of this rank among those of its host

    int ranks() const;
    int rank() const { return own()[static_cast<std::size_t>(index)]; }
    const std::vector<int>& own() const { return hosts[static_cast<std::size_t>(host)]; }
    // So many ranks of each host, the first ones, have streams to those of the same index
    // elsewhere.
    int rails() const;
};

// One rank's end of a group. It all-reduces in place, and has barriers.
//
// A tensor is taken in pieces. All ranks of a host put one into the host's memory; each rail sums a
// stripe of it with the rails of other hosts; then all take the result. The sums of a host's ranks
// travel unrounded, as terms, so the bits are those of a group of all ranks.
//
//     all     put in piece 0
//     ───────────────────── phase ─────────────────────
//     rails   send their stripes of piece n
//     all     take out piece n - 1, put in piece n + 1
//     rails   finish piece n
//     ───────────────────── phase ─────────────────────
class Group final : public collectives::Group {
  public:
    // `local`: the memory's group of the host, null if this rank is alone there. `rail`: streams to
    // one rank of each host, in order; null if this rank is in no rail. `rounds`: sums of floats
    // are rounded in each host, and what that gives is summed and rounded again; of an average the
    // power of two comes off before the first step, and the rest after the second.
    Group(Places places, std::shared_ptr<shared::Group> local, std::unique_ptr<streams::Mesh> rail,
          bool rounds = false);

    int rank() const override { return places_.rank(); }
    int ranks() const override { return ranks_; }

    std::uint64_t begin(const Request& request) override;
    bool advance(std::chrono::nanoseconds timeout, std::uint64_t operation = 0) override;
    std::uint64_t in_progress() const override;

    std::vector<std::uint64_t> fingerprints() const override;
    std::vector<std::uint64_t> histories() const override;
    std::vector<int> differing() const override;
    std::vector<int> missing() const override;
    bool waits_for_aggregator() const override { return rail_ && rail_->waits_for_aggregator(); }
    std::string obstacle() const override { return rail_ ? rail_->obstacle() : std::string(); }
    std::vector<int> ended() const override;
    void fail(const std::string& text) override;
    std::string failure() const override;

    std::uint64_t operations() const { return operations_over_; }
    std::uint64_t bytes() const { return bytes_; }
    const shared::Group* local() const { return local_.get(); }
    const streams::Mesh* rail() const { return rail_.get(); }

  private:
    enum class Doing { Phase, Exchange };

    void check_usable() const;
    bool step(std::chrono::nanoseconds timeout);
    void begin_phase();
    void begin_exchange();
    void put(std::size_t piece);
    void take(std::size_t piece);
    std::size_t bytes_of(std::size_t piece) const;
    bool takes_part(std::size_t blocks) const;
    std::vector<int> of_local(const std::vector<int>& local) const;
    std::vector<int> of_hosts(const std::vector<int>& hosts) const;

    const Places places_;
    const int ranks_;
    const pid_t process_;
    const std::shared_ptr<shared::Group> local_;
    Stage stage_;
    // It ends before the memory from which it may still send.
    const std::unique_ptr<streams::Mesh> rail_;
    std::vector<int> sources_;  // ranks of each host
    const bool rounds_;
    Caller caller_;

    mutable std::mutex mutex_;  // of begin and advance
    bool active_ = false, broken_ = false;
    std::atomic<std::uint64_t> operations_over_{0}, bytes_{0};
    Call call_{};
    streams::Signature signature_{};
    std::optional<Terms> terms_;
    bool divides_ = false;  // the result, into an average
    Doing doing_ = Doing::Phase;
    std::size_t piece_ = 0, pieces_ = 0;
    std::uint64_t phase_ = 0;  // the local operation in progress; 0 if none is
    bool exchanging_ = false;
    std::atomic<bool> opened_{false};  // all ranks of the host have called
};

}  // namespace afflux::hosts
