// Messages to NCCL's log.
#pragma once

#include <string>

#include "nccl/net_abi.hpp"

namespace afflux::nccl {

// The function by which NCCL logs, which every init gives. Any thread may log.
void set_logger(abi::Logger logger);

// A warning, which NCCL_DEBUG=WARN shows, and INFO.
void warn(const std::string& text);

// A message that NCCL_DEBUG=INFO shows, with NET or INIT in NCCL_DEBUG_SUBSYS.
void inform(const std::string& text);

}  // namespace afflux::nccl
