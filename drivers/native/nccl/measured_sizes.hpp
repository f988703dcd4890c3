// The table of sizes that ships with the plugin, in the form of the file that AFFLUX_NCCL_TABLE
// names (size_table.hpp). `python -m benchmarks.network.nccl` writes it.
#pragma once

namespace afflux::nccl {

inline constexpr char kMeasuredSizes[] = R"(
# engine  Gbit/s  nodes  bytes
soft      1       2      none
soft      1       4      32768:
soft      1       8      4096:4096,262144:
soft      10      2      none
soft      10      4      none
soft      25      2      none
streams   1       2      4096:4096
streams   1       4      262144:
streams   1       8      262144:262144,4194304:
streams   10      2      0:8
streams   10      4      0:4096
streams   25      2      0:8
mesh      1       2      none
mesh      1       4      none
mesh      1       8      none
mesh      10      2      0:8
mesh      10      4      0:8
mesh      25      2      0:8
)";

}  // namespace afflux::nccl
