// How the nodes of a communicator come to jobs: node 0 creates them, and gives the others tickets;
// or they have streams to each other.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "control/job.hpp"
#include "control/lease_keeper.hpp"
#include "nccl/environment.hpp"
#include "nccl/job_worker.hpp"
#include "nccl/link.hpp"
#include "nccl/peer.hpp"
#include "nccl/progress.hpp"

namespace afflux::nccl {

// Node 0 has this many times the time for one step: all nodes come, the jobs are created, all join.
// The others wait so many seconds longer, so that they hear from it why it fails.
inline constexpr double kSteps = 3, kLonger = 2;

// Why the lease keeper says that a job is over.
class Loss {
  public:
    void note(const std::string& why) {
        const std::scoped_lock alone(mutex_);
        why_ = why;
    }
    std::string why() const {
        const std::scoped_lock alone(mutex_);
        return why_;
    }

  private:
    mutable std::mutex mutex_;
    std::string why_;  // empty: it does not
};

// The possessions of node `rank` of `ranks` when all have joined. Node 0 has all other nodes as
// peers, and the leases; the others have node 0.
struct Formed {
    int rank;
    int ranks;
    std::vector<Peer> peers;
    std::vector<std::unique_ptr<control::JobLease>> leases;
    std::vector<std::unique_ptr<JobWorker>> workers;
    std::unique_ptr<Loss> loss;  // with the keeper of the leases, which writes there
    std::unique_ptr<control::LeaseKeeper> keeper;
};

// Waits for the other `nodes`, in order, and for all steps together at most three times as long as
// the settings say for one. The keeper wakes `progress`, which must live as long as what has been
// formed. `sizes` are those that the tuner takes, as text. Throws std::runtime_error at every node
// if one cannot take part, or has other sizes; all that has been created is closed then. After it
// has returned little is left that can fail, as other nodes count on this one.
Formed form(const std::vector<Handle>& nodes, int rank, const Listener& listener,
            const Interface& interface, const Settings& settings, const std::string& sizes,
            ProgressThread& progress);

}  // namespace afflux::nccl
