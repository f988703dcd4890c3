// The aggregator's state machine (protocol, sections 5.1 to 5.6): packets in, packets out.
//
// It knows nothing of frames and sockets; the code around it takes packets from there and checks
// the headers before Afflux's. A core has all jobs of its engine, and of each job's slots a share
// (Job::owner). Not thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "engine/counters.hpp"
#include "engine/job.hpp"
#include "engine/packet_sink.hpp"
#include "engine/refusal_limit.hpp"
#include "engine/rounds.hpp"
#include "engine/sender.hpp"
#include "engine/slots.hpp"

namespace afflux::engine {

// The sizes of an engine.
struct Limits {
    unsigned workers = wire::kWorkersMax;  // of a job
    unsigned lanes = wire::kLanesMax;      // of a slot
    unsigned jobs = 8;                     // at once, as many as wire::Job can number
    unsigned slots = 512;                  // of the pool, as many as wire::Slot can number
    int partial_bits = 64;                 // Parent::partial_bits of its jobs
};

// A packet that came to one of the engine's ports.
struct Arrival {
    Packet packet;
    packet::Endpoint peer;
    std::uint16_t port;  // of the engine
    // A checksum has shown that the packet came as it was sent; of a socket the host has seen to
    // it.
    bool verified = true;
};

class Core {
  public:
    // Told of each worker that has joined, after this core has noted it.
    using Joined = std::function<void(const Job& job, wire::Worker worker)>;

    // The pool must live as long; other cores may use its other slots at the same time.
    Core(const Limits& limits, SlotPool& slots, Joined joined);

    Core(const Core&) = delete;
    Core& operator=(const Core&) = delete;

    // The check of the length (section 5.2); returns whether it was passed. A packet is counted for
    // the first check that it fails, and changes no state before all have passed.
    bool passes_length(const packet::Header& header, std::size_t payload_bytes);
    // The checks from the version on, in order, and the action if they are passed.
    void admit(const Arrival& arrival);

    // The time, for RefusalLimit::at.
    void at(std::chrono::nanoseconds now) { refusals_.at(now); }

    // The number of the core to which a packet belongs; `otherwise` if any may judge it.
    unsigned owner(const packet::Header& header, std::uint16_t port, unsigned otherwise) const;

    // Has the next carry_out() ask the parent of a job, which has one, to let it join.
    void ask_parent(std::size_t number);
    void carry_out();

    // Jobs, by number. Slots are set by whoever creates a job.
    void create(const Job& job) {
        jobs_[job.number] = job;
        ++jobs_changed_;
    }
    void destroy(std::size_t number) {
        jobs_[number].reset();
        ++jobs_changed_;
    }
    // How often a job has been created or destroyed.
    std::uint64_t jobs_changed() const { return jobs_changed_; }
    Job* job_at(std::size_t number) {
        return number < jobs_.size() && jobs_[number] ? &*jobs_[number] : nullptr;
    }
    const Job* job_at(std::size_t number) const {
        return number < jobs_.size() && jobs_[number] ? &*jobs_[number] : nullptr;
    }

    // Sets the engine's own endpoint.
    void move_to(const packet::Endpoint& local) {
        local_ = local;
        sender_.move_to(local);
    }
    const packet::Endpoint& local() const { return local_; }

    // Whether a port is one of those on which parents answer.
    bool is_parent_port(std::uint16_t port) const {
        return static_cast<std::uint16_t>(port - local_.port - 1) < jobs_.size();
    }

    // Where packets go from now on; must live as long. Returns where they went before.
    PacketSink* send_to(PacketSink* sink) { return sender_.send_to(sink); }

    Counters& counters() { return counters_; }

  private:
    void from_worker(const Arrival& arrival);
    void from_parent(const Arrival& arrival);
    void join(Job& job, const Arrival& arrival);
    void refuse(const Arrival& arrival, Counter counter, wire::Refusal cause);

    Limits limits_;
    Joined joined_;
    std::vector<std::optional<Job>> jobs_;
    Counters counters_;
    bool commanded_ = false;
    std::uint64_t jobs_changed_ = 0;
    packet::Endpoint local_;
    Sender sender_;
    Rounds rounds_;
    RefusalLimit refusals_;
};

}  // namespace afflux::engine
