// A node's end of a job that the nodes carry out themselves, over streams between each two of them,
// or an aggregator of streams with them.
#pragma once

#include <cstdint>
#include <memory>

#include "nccl/job_worker.hpp"
#include "streams/mesh.hpp"

namespace afflux::nccl {

class StreamsWorker final : public JobWorker {
  public:
    // Takes over the sockets, by node, -1 for the own one; after them there may be one to an
    // aggregator, which is `place`, and counts as dead when its host has acknowledged nothing for
    // `peer_s` seconds. `one_hop`: as that of the mesh.
    StreamsWorker(int rank, const std::vector<int>& sockets, std::size_t nodes, std::size_t one_hop,
                  std::string place, double peer_s);

    void begin(const Reduction& reduction) override;
    bool advance() override;
    // Only to look whether the aggregator's host is there: of all else its sockets tell.
    double next_timer() const override;
    void watch(std::vector<pollfd>& polled) const override;
    void leave_off() override;
    void close(const std::string& why) override;

    // `mesh`; `streams` with an aggregator.
    std::string engine() const override;
    // Bytes and blocks.
    std::string statistics() const override;

  private:
    void look_for_aggregator();

    const std::string place_;
    const double peer_s_;
    std::unique_ptr<streams::Mesh> mesh_;
    double next_look_;
    double silent_since_;  // infinite if it is not silent
    std::uint64_t operation_ = 0;
    std::string statistics_;
};

}  // namespace afflux::nccl
