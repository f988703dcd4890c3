// The table of sizes that ships with the plugin, in the form of the file that AFFLUX_NCCL_TABLE
// names (size_table.hpp). `python -m benchmarks.network.nccl` writes it.
#pragma once

namespace afflux::nccl {

inline constexpr char kMeasuredSizes[] = R"(
# engine  Gbit/s  nodes  bytes
soft      1       2      none
soft      1       4      262144:1048576,26214400:
soft      1       8      none
)";

}  // namespace afflux::nccl
