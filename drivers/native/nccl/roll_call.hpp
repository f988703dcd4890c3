// Node 0 hears from all others whether they have joined what it has proposed, and lets them go.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "nccl/peer.hpp"

namespace afflux::nccl {

class RollCall {
  public:
    // The peers must live as long.
    explicit RollCall(std::vector<Peer>& peers) : peers_(peers) {}

    // Takes what has come. Throws std::runtime_error if a node has given up, or has gone.
    void heed();

    // Waits until all have joined, and none has given up since. Calls `between` meanwhile, which
    // may throw. Throws as `heed`, too, and if the time is over.
    void confirm(double deadline, const std::function<void()>& between = [] {});

    // All begin with the first that hears it. A node that does not is gone, which ends the
    // communicator as at any later time.
    void go();

    // Nobody does.
    void fail(const std::string& why);

  private:
    bool has_joined(const Peer& peer) const { return joined_.count(peer.rank) != 0; }
    void look_at(Peer& peer);

    std::vector<Peer>& peers_;
    std::set<int> joined_;
};

}  // namespace afflux::nccl
