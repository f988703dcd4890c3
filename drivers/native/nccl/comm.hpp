// A communicator of nodes: carries out its requests, one after the other on each of its jobs.
#pragma once

#include <poll.h>

#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "nccl/change.hpp"
#include "nccl/forming.hpp"
#include "nccl/kept_inputs.hpp"
#include "nccl/request.hpp"

namespace afflux::nccl {

class ProgressThread;

// NCCL's proxy calls `post` and `test` all the time while it waits, so that these make progress: no
// other thread has to wake up for it. Where it does not, the device's thread does.
class Comm {
  public:
    // Takes over what has been formed.
    // All must live as long.
    Comm(Formed formed, const Interface& interface, ProgressThread& progress,
         const Settings& settings);
    ~Comm();
    Comm(const Comm&) = delete;
    Comm& operator=(const Comm&) = delete;

    // Posts an all-reduce, and returns at once; null if too many are in flight. Throws
    // std::runtime_error with why the communicator has failed.
    Request* post(void* send, void* receive, const Reduction& reduction, bool clear);

    // Whether a request is over, which is free then. Throws as `post` if it has failed.
    bool test(Request& request, std::size_t& bytes);

    // Memory is about to go: if a request is in flight there, the communicator fails, so that
    // nothing touches it any more.
    void forget(const Memory& memory);

    // Leaves the progress thread, tells the others, and ends the jobs. Waits for the others if this
    // is node 0, whose jobs may hold results that they still need.
    void close();

    // For the device's thread: does what there is to do, and adds what to wait for. Returns when to
    // come again at the latest. It leaves all that to NCCL's proxy if that has come a moment ago.
    double progress(std::vector<pollfd>& polled);

    int rank() const { return formed_.rank; }

  private:
    // Returns the time.
    double progress_if_free();
    double progress(double now);
    void watch(std::vector<pollfd>& polled) const;
    // Whether the job of the next operation has none.
    bool next_is_free() const { return !is_busy(begun_ % running_.size()); }
    void start_next();
    void start(std::size_t job);
    bool advance();
    bool is_busy(std::size_t job) const { return running_[job] != nullptr || again_[job]; }
    bool rests() const;
    // The aggregator has gone: begins to go on without it, and ends that.
    void change(const std::string& why);
    void end_change();
    void await_change();
    void finish(std::size_t job);
    void heed_peers(double now);
    void heed(Peer& peer, const control::Object& said);
    // All requests fail, and the others hear why.
    void fail(const std::string& why, const Peer* told_by = nullptr);
    void tell(Peer& peer, const control::Object& message);
    void tell_failed(const std::string& text, const Peer* told_by);
    void end_failed_change();
    void say_passed();
    void wait_for_others();
    std::string failure() const;

    std::mutex progress_mutex_;       // guards what is not guarded otherwise
    std::atomic<double> polled_ = 0;  // when NCCL's proxy has come last
    Formed formed_;
    ProgressThread& progress_;
    const Interface& interface_;
    const Settings& settings_;
    RequestRing ring_;
    std::vector<Request*> running_;  // by job; null: none
    // By job: operations that are over here; whether the last of them is carried out once more, for
    // nodes that lack it; and, as long as there is an aggregator, what they need for that.
    std::vector<std::uint64_t> over_of_;
    std::vector<bool> again_;
    std::vector<KeptInputs> kept_;
    std::map<int, control::Object> changing_;       // what other nodes have said of a change
    std::unique_ptr<Change> change_;                // null: there was none yet
    bool changes_ = false;                          // it is not over yet
    std::vector<std::unique_ptr<JobWorker>> left_;  // workers of before it
    std::uint64_t begun_ = 0;
    std::uint64_t over_ = 0;
    // After how many operations another node has closed; and, of node 0, until that is answered.
    std::uint64_t last_ = std::numeric_limits<std::uint64_t>::max();
    bool passing_ = false;
    std::string closed_by_;
    double next_heed_ = 0;

    std::atomic<bool> failed_ = false;
    mutable std::mutex mutex_;  // guards what follows
    std::string failure_;
};

}  // namespace afflux::nccl
