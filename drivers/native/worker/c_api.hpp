// All-reduces in place by a worker's lines, behind the interface of c_api.h.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "c_api/handle.hpp"
#include "worker/line.hpp"
#include "worker/operation.hpp"
#include "worker/session.hpp"
#include "worker/udp_loop.hpp"

namespace afflux::worker {

// Used by one thread at a time; `describe` and `close` may come from any.
class Calls : public afflux_group {
  public:
    // The loop must be that of the lines; session i is line i's. All must live until `close`.
    Calls(UdpLoop& loop, std::vector<Line*> lines, std::vector<Session*> sessions);

    // The fingerprint for requests: it stands for the rest of the operation's text after its
    // number, such as ":sum:float32:300".
    std::uint64_t describe(const std::string& rest);

    std::int32_t begin(const afflux_request& request, afflux_outcome& outcome) noexcept override;
    std::int32_t advance(std::uint64_t operation, std::int64_t nanoseconds,
                         afflux_outcome& outcome) noexcept override;
    std::uint64_t in_progress() noexcept override;

    // Parts of the latest operation, one for each line that has columns of its tensor. Valid until
    // the next one begins.
    std::vector<const Operation*> parts() const;

    // Number of that operation, among those of the job.
    std::uint64_t number() const { return number_; }

    // How many have come to a good end.
    std::uint64_t over() const { return over_; }

    // Throws what ended the latest operation, if an error did; `UdpLoop::serving` tells on which
    // line.
    void raise_failure() const;

    // From now on nothing can be called.
    void close();

  private:
    std::uint32_t fingerprint_of(std::uint64_t number, std::uint64_t description) const;
    std::int32_t fail(afflux_outcome& outcome, afflux_status status, const char* text);
    bool all_done() const;
    bool bring_again();

    UdpLoop& loop_;
    std::vector<Line*> lines_;
    std::vector<Session*> sessions_;
    std::size_t slots_;  // the least of the jobs'
    std::map<std::string, std::uint64_t> descriptions_;
    std::vector<std::string> texts_;  // by description
    mutable std::mutex texts_mutex_;  // of both: another thread may ask for a call meanwhile
    std::mutex mutex_;                // held by who is inside
    bool closed_ = false;
    std::vector<std::unique_ptr<Operation>> parts_;
    Tensor tensor_{};                      // of the latest operation
    std::vector<std::size_t> not_summed_;  // blocks of it that are yet to be brought again
    std::unique_ptr<Again> again_;         // those that the part in progress brings
    std::uint64_t begun_ = 0;
    std::uint64_t last_over_ = 0;  // of those begun
    std::uint64_t over_ = 0;
    std::uint64_t number_ = 0;
    bool running_ = false;
    std::exception_ptr failure_;
};

}  // namespace afflux::worker
