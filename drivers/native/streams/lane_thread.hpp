// A thread that moves some lanes of a mesh, while its rank is inside of the mesh.
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "streams/driver.hpp"
#include "streams/wake.hpp"

namespace afflux::streams {

// It runs between `run` and `pause` only: outside of its calls a group touches no tensor.
class LaneThread {
  public:
    // `found` is signalled when its lanes have done all, or have failed.
    LaneThread(std::vector<Driver::Lane> lanes, const Wake& found, WaitCounts& counts);
    ~LaneThread();
    LaneThread(const LaneThread&) = delete;
    LaneThread& operator=(const LaneThread&) = delete;

    // An operation has begun at its lanes.
    void begin(std::size_t lanes);
    void run();
    // Returns when the thread touches nothing any more.
    void pause();
    // Whether its lanes have done all. Throws what they have thrown.
    bool over();
    // Of a process that was forked: the thread is not there.
    void forget() { thread_.detach(); }

  private:
    void work();

    const Wake wake_;
    const Wake& found_;
    Driver driver_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool runs_ = false, busy_ = false, over_ = true, ends_ = false;
    std::exception_ptr error_;
    std::thread thread_;
};

}  // namespace afflux::streams
