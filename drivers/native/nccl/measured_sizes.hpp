// The table of sizes that ships with the plugin, in the form of the file that AFFLUX_NCCL_TABLE
// names (size_table.hpp). `python -m benchmarks.network.nccl` writes it.
#pragma once

namespace afflux::nccl {

inline constexpr char kMeasuredSizes[] = R"(
# engine  Gbit/s  nodes  bytes
soft      1       2      32768:262144
soft      1       4      0:8,32768:
shards    1       2      32768:1048576
shards    1       4      1048576:1048576
)";

}  // namespace afflux::nccl
