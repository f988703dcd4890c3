// Renews the leases of jobs, and notices their end, in a thread of the process that made them.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "control/job.hpp"

namespace afflux::control {

class LeaseKeeper {
  public:
    // `lost` is called once, in the keeper's thread, with why a job is over before its time.
    LeaseKeeper(std::vector<JobLease*> leases, std::function<void(const std::string&)> lost);
    ~LeaseKeeper() { stop(); }
    LeaseKeeper(const LeaseKeeper&) = delete;
    LeaseKeeper& operator=(const LeaseKeeper&) = delete;

    // Renews no more; waits for an answer that is under way. May be called more than once.
    void stop();

  private:
    void run();
    // The connections that say something, once it is time or there is something to do.
    std::vector<JobLease*> wait(double until) const;
    // Why the job is over, empty if it is not known to be.
    std::string look_after(JobLease& lease, bool speaks, bool due);
    std::string judge(const JobLease& lease, const std::string& failure, bool nobody_listens);

    const std::vector<JobLease*> leases_;
    const std::function<void(const std::string&)> lost_;
    double every_s_ = 0;
    std::map<const JobLease*, double> silent_;  // those that cannot be renewed: since when
    std::atomic<bool> stopping_ = false;
    int wake_ = -1;
    std::thread thread_;
};

}  // namespace afflux::control
