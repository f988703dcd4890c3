// Why an operation can not go on.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace afflux::worker {

// A result breaks the protocol; the text says how.
class Misbehaved : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// The ranks called different operations.
class Disagreed : public std::runtime_error {
  public:
    explicit Disagreed(std::optional<std::vector<std::uint32_t>> found)
        : std::runtime_error("the ranks disagree"), fingerprints(std::move(found)) {}

    // Of all ranks; nothing if the aggregator found the disagreement.
    std::optional<std::vector<std::uint32_t>> fingerprints;
};

std::string hexadecimal(std::uint32_t value, int digits);

}  // namespace afflux::worker
