// The change of a communicator whose aggregator has ended: its nodes make streams to each other.
//
//     every node   says to node 0 why, how many operations of each job it has ended, and where it
//                  listens, once it takes no result of the aggregator any more
//     node 0       says to all that there is a change, if they do not know; and, when all have
//                  spoken, with which operations the new jobs begin, and where all listen
//     every node   makes its streams, and says so; node 0 lets all go
//
// A node that has ended an operation which another one lacks contributes to it again: sums are
// rounded correctly, so that the bits are those that it has.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "control/object.hpp"
#include "nccl/forming.hpp"

namespace afflux::nccl {

class ProgressThread;

class Change {
  public:
    // The results: the new workers, and by job how many operations are over at all nodes.
    struct Made {
        std::vector<std::unique_ptr<JobWorker>> workers;
        std::vector<std::uint64_t> over;
    };

    // Begins it, in a thread of its own, which has the connections to the other nodes until it is
    // over. `over`: of this node, by job. `said`: what others have said of it already, by node.
    // Wakes `progress` at the end. All must live as long.
    Change(Formed& formed, const Interface& interface, const Settings& settings, std::string why,
           std::vector<std::uint64_t> over, std::map<int, control::Object> said,
           ProgressThread& progress);
    // Gives up, if it is not over.
    ~Change();
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;

    bool is_over() const { return over_now_.load(std::memory_order_acquire); }
    // Once, when it is over. Throws std::runtime_error with why it has failed, which all nodes
    // hear.
    Made take();
    // Lets it fail soon.
    void cancel(const std::string& why);

  private:
    void run();
    void lead();
    void follow();
    std::vector<std::uint64_t> least_over(const std::vector<control::Object>& said) const;
    control::Object next(Peer& peer);
    void check_cancelled();
    void release();

    Formed& formed_;
    const Interface& interface_;
    const Settings& settings_;
    const std::string why_;
    const std::vector<std::uint64_t> over_;
    std::map<int, control::Object> said_;
    ProgressThread& progress_;
    const double deadline_;
    Made made_;
    std::string failure_;
    std::atomic<bool> over_now_ = false;
    std::mutex mutex_;  // guards what follows
    std::string cancelled_;
    std::thread thread_;
};

}  // namespace afflux::nccl
