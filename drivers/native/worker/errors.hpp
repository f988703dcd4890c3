// Why a dialogue cannot go on.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace afflux::worker {

// A result breaks the protocol; the text gives the details.
class Misbehaved : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// The ranks called different operations.
class Disagreed : public std::runtime_error {
  public:
    explicit Disagreed(std::optional<std::vector<std::uint32_t>> found)
        : std::runtime_error("the ranks disagree"), fingerprints(std::move(found)) {}

    // Those of all ranks; empty if the aggregator found the disagreement.
    std::optional<std::vector<std::uint32_t>> fingerprints;
};

// The aggregator refuses a JOIN.
class Refused : public std::runtime_error {
  public:
    explicit Refused(std::uint32_t given)
        : std::runtime_error("the join is refused"), cause(given) {}

    std::uint32_t cause;  // a wire::Refusal, if it is a known one
};

// The fields of a job in JOINED: workers, lanes, slots, credit, address and port of the group or 0.
using JobTerms = std::array<std::uint32_t, 6>;

// The aggregator has another job under this number than the worker expects.
class DifferentJob : public std::runtime_error {
  public:
    explicit DifferentJob(const JobTerms& given)
        : std::runtime_error("the job is another one"), found(given) {}

    JobTerms found;
};

std::string hexadecimal(std::uint32_t value, int digits);

}  // namespace afflux::worker
