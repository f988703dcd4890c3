// The interface of a rank's end of a group, whatever its ranks have in common.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/errors.hpp"
#include "collectives/request.hpp"

namespace afflux::collectives {

// One operation at a time. Calls may come from any thread, one after the other; `fail`, `failure`,
// `missing` and `ended` also while another one runs. In a process forked from the rank's every
// call throws Failed.
class Group {
  public:
    virtual ~Group() = default;
    Group() = default;
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;

    virtual int rank() const = 0;
    virtual int ranks() const = 0;

    // Begins a collective and does not wait for other ranks. The tensors must stay until the
    // operation is over; the lists that name them need not. Returns the operation's number, counted
    // from 1. Unless the requests agree at all ranks, in all but the tensors, all throw
    // Disagreement.
    // Throws std::invalid_argument for a request that cannot be, without any effect;
    // std::logic_error if an operation is in progress, Failed.
    virtual std::uint64_t begin(const Request& request) = 0;
    // Works and waits for up to `timeout`; true when the operation is over and the outputs hold the
    // result, false if it needs more time. If `operation` is not 0 it is the number of the one that
    // is meant, and true also if that one is over already.
    // Throws Disagreement; Failed if a rank has ended or failed the group. Then the content
    // of the outputs is undefined, and the group cannot be used any more.
    virtual bool advance(std::chrono::nanoseconds timeout, std::uint64_t operation = 0) = 0;
    // The number of the operation in progress; 0 if none is.
    virtual std::uint64_t in_progress() const = 0;

    // After Disagreement: each rank's fingerprint, and its history.
    virtual std::vector<std::uint64_t> fingerprints() const = 0;
    virtual std::vector<std::uint64_t> histories() const = 0;
    // The ranks whose call differs from this one's.
    virtual std::vector<int> differing() const = 0;
    // Ranks for which this one waits.
    virtual std::vector<int> missing() const = 0;
    // Whether all ranks have done their part, and what sums for them has not.
    virtual bool waits_for_aggregator() const { return false; }
    // Says why this rank's data do not reach another one, as far as that is known; empty if they
    // do. Any thread.
    virtual std::string obstacle() const { return {}; }
    // Ranks that were there and no longer are.
    virtual std::vector<int> ended() const = 0;
    // Makes all ranks leave their operations with Failed; the first text stays.
    virtual void fail(const std::string& text) = 0;
    virtual std::string failure() const = 0;  // empty if none
};

}  // namespace afflux::collectives
