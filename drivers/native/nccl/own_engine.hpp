// A software engine in this process, which owns a share of the columns of a communicator's tensors.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "aggregator/server.hpp"
#include "control/job.hpp"
#include "datagrams/udp_socket.hpp"
#include "engine/engine.hpp"
#include "nccl/interfaces.hpp"

namespace afflux::nccl {

class OwnEngine {
  public:
    // Serves so many jobs of the same size at the interface's address, until it is destroyed.
    // Throws std::system_error if it cannot have a socket.
    OwnEngine(const Interface& interface, unsigned workers, unsigned lanes, unsigned jobs,
              std::size_t slots);
    ~OwnEngine();
    OwnEngine(const OwnEngine&) = delete;
    OwnEngine& operator=(const OwnEngine&) = delete;

    // One for each job.
    const std::vector<control::Ticket>& tickets() const { return tickets_; }

  private:
    void create(const control::Ticket& ticket, std::size_t slot_base);

    engine::Engine engine_;
    datagrams::UdpSocket socket_;
    std::unique_ptr<aggregator::Server> server_;
    std::vector<control::Ticket> tickets_;
    std::thread thread_;
};

}  // namespace afflux::nccl
