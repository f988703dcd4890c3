// An aggregator whose jobs have one worker, as a thread: it sends each contribution back as its
// result.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "datagrams/receiver.hpp"
#include "datagrams/send_batch.hpp"
#include "packet/packet_buffer.hpp"
#include "worker/session.hpp"

namespace afflux::tests {

inline constexpr std::uint32_t kLoopback = 0x7F000001;

// Sends each DATA back as the RESULT that it is where a job has one worker.
class Mirror {
  public:
    Mirror() {
        socket_.enlarge(8 << 20);
        socket_.bind({kLoopback, 0});
        socket_.coalesce();
        const timeval limit{0, 20'000};
        setsockopt(socket_.number(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        thread_ = std::thread([this] { serve(); });
    }

    ~Mirror() {
        stop_ = true;
        thread_.join();
    }

    datagrams::Address address() const { return socket_.own_address(); }

  private:
    void serve() {
        datagrams::Receiver receiver(packet::datagram_bytes(wire::kLanesMax), true);
        datagrams::SendBatch batch(socket_);
        while (!stop_) {
            pollfd readable{socket_.number(), POLLIN, 0};
            poll(&readable, 1, 20);
            do {
                for (const datagrams::Datagram& each : receiver.receive(socket_)) {
                    // All its results arrive, so it need not answer probes.
                    if (each.data[0] != packet::version_type(wire::Type::Data)) continue;
                    const_cast<std::uint8_t*>(each.data)[0] =
                        packet::version_type(wire::Type::Result);
                    batch.add(*each.source, {{each.data, each.bytes}});
                }
                while (!batch.flush()) {
                    pollfd writable{socket_.number(), POLLOUT, 0};
                    poll(&writable, 1, 20);
                }
            } while (receiver.more());
        }
    }

    datagrams::UdpSocket socket_;
    std::atomic<bool> stop_ = false;
    std::thread thread_;
};

// The only worker's job.
inline worker::JobRun mirrored_job(unsigned lanes, std::size_t slots) {
    return {.number = 0,
            .key = 7,
            .first_round = 1,
            .workers = 1,
            .lanes = lanes,
            .slots = slots,
            .worker = 0,
            .rank = 0,
            .ranks = 1,
            .credit = static_cast<std::uint32_t>(slots),
            .group_host = 0,
            .group_port = 0};
}

}  // namespace afflux::tests
