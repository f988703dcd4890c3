// Jobs at an aggregator, and the leases by which their creator holds them (protocol, section 10.2).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "control/channel.hpp"

namespace afflux::control {

// All that a worker must know to join a job.
struct Ticket {
    Place place;    // where workers send
    Place control;  // the aggregator's control channel
    unsigned job = 0;
    std::uint64_t key = 0;
    std::uint32_t round = 0;
    unsigned workers = 0;
    unsigned lanes = 0;
    std::size_t slots = 0;
    std::uint32_t credit = 0;
    std::string engine;
    std::string group;  // multicast address that results go to; empty if there is none
    std::uint16_t group_port = 0;
    unsigned ranges = 1;

    // One line, and back; nothing if it is none.
    Object object() const;
    static std::optional<Ticket> of(const Object& object);
};

// The wishes of the creator of a job.
struct JobWish {
    unsigned workers = 0;
    unsigned lanes = 0;     // most
    std::size_t slots = 0;  // most
    int lease_s = 0;        // 0: it ends with the connection only
};

// A job, for as long as it is not closed. Thread-safe.
class JobLease {
  public:
    // Creates the job; throws what Channel does.
    JobLease(const Place& place, std::optional<std::string> secret, const JobWish& wish,
             double seconds);
    ~JobLease();

    const Ticket& ticket() const { return ticket_; }
    // The lease that the aggregator has granted, in seconds; 0: none.
    int lease_s() const { return lease_s_; }

    // Renews the lease; over another connection if this one has broken or is silent, which stays
    // until the job belongs to the other one. Throws Refused if the job is over.
    void renew(double seconds);

    // Takes what the aggregator has said without being asked; throws as Channel::heed does.
    void heed();

    // The file number of the job's connection; -1 while there is none.
    int number() const;

    // Ends the job; throws if the aggregator does not confirm it. May be called more than once.
    void close(double seconds);

  private:
    Object request(const char* kind) const;
    std::unique_ptr<Channel> opened(double seconds) const;

    const Place place_;
    const std::optional<std::string> secret_;
    mutable std::mutex mutex_;
    std::unique_ptr<Channel> channel_;  // null: closed, or broken while it was being renewed
    bool silent_ = false;  // an answer has not come; a late one would be taken for the next one's
    bool closed_ = false;
    Ticket ticket_;
    int lease_s_ = 0;
};

}  // namespace afflux::control
