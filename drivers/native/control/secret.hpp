// The secret of an aggregator's control channel: its file, and its form.
#pragma once

#include <optional>
#include <string>

namespace afflux::control {

// The secret that a file has or a text is, or nothing if neither is given; white space around it
// does not count. Throws std::invalid_argument if both are given, the file may be read by others,
// or what is given cannot be a secret; the message does not show it.
std::optional<std::string> find_secret(const std::optional<std::string>& file,
                                       const std::optional<std::string>& text);

}  // namespace afflux::control
