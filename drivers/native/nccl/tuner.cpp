// The symbols that NCCL asks for to choose algorithms: its tables of tuners, versions 2 to 6.
//
// All-reduces of the sizes that AFFLUX_NCCL_BYTES names go through the aggregator, and no others;
// unset, those for which the table of measured sizes has it faster. NCCL's own model decides for
// engines, links and numbers of nodes that the table does not have. All-gathers and reduce-scatters
// never go there, as the tables of collectives have none. Every node must decide alike, so nothing
// is measured here, and nodes compare their sizes when they connect.
#include <algorithm>

#include "nccl/plugin.hpp"
#include "nccl/tuner_abi.hpp"

namespace afflux::nccl {
namespace {

using abi::Result;

// The context of a communicator: the sizes, from its first all-reduce on, when it has connected and
// the engine is known. Null leaves all to NCCL. Within one node it is null: NVLS needs no CollNet
// there, so its costs are to stay.
struct Sizes {
    std::size_t nodes;
    std::optional<ByteRanges> taken{};
};

// It does not fail: NCCL would not form the communicator at all. Where the plugin does not open,
// its network does not either, and says why; NCCL goes on with its own.
void open(std::size_t nodes, abi::Logger logger, void** context) {
    *context = nullptr;
    const Result opened = guarded(abi::InvalidUsage, [&] {
        Plugin::get().open(logger);
        return abi::Success;
    });
    if (opened == abi::Success && nodes > 1) *context = new Sizes{.nodes = nodes};
}

Result init(std::size_t, std::size_t nodes, abi::Logger logger, void** context) {
    open(nodes, logger, context);
    return abi::Success;
}

Result init_with_comm(void** context, std::uint64_t, std::size_t, std::size_t nodes,
                      abi::Logger logger, abi::NvlinkDomains*, abi::TunerConstants*) {
    open(nodes, logger, context);
    return abi::Success;
}

enum class Choice { NcclDecides, Take, Forbid };

Choice choice(void* context, int collective, std::size_t bytes) {
    if (context == nullptr || collective != abi::AllReduce) return Choice::NcclDecides;
    Sizes& sizes = *static_cast<Sizes*>(context);
    if (!sizes.taken) sizes.taken = Plugin::get().chosen_sizes(sizes.nodes);
    if (!sizes.taken) return Choice::NcclDecides;
    const bool takes = std::any_of(sizes.taken->begin(), sizes.taken->end(),
                                   [bytes](const ByteRange& each) { return each.holds(bytes); });
    return takes ? Choice::Take : Choice::Forbid;
}

void set_costs(void* context, int collective, std::size_t bytes, float** costs, int algorithms,
               int protocols) {
    const Choice chosen = choice(context, collective, bytes);
    if (chosen == Choice::NcclDecides) return;
    // NCCL passes its array of arrays as such a pointer. Between nodes NVLS needs CollNet, too.
    auto* const table = reinterpret_cast<float*>(costs);
    for (const int algorithm : {abi::CollNetDirect, abi::CollNetChain, abi::Nvls}) {
        if (algorithm >= algorithms || abi::Simple >= protocols) continue;
        float& cost = table[algorithm * protocols + abi::Simple];
        if (chosen == Choice::Forbid) {
            cost = abi::kIgnored;
        } else if (cost >= 0) {
            cost = 0;
        }
    }
}

Result get_info_v2(void* context, int collective, std::size_t bytes, int collnet, int, int,
                   int* algorithm, int* protocol, int*) {
    // Here nothing can be forbidden, only taken.
    if (collnet != 0 && choice(context, collective, bytes) == Choice::Take) {
        *algorithm = abi::CollNetChain;
        *protocol = abi::Simple;
    }
    return abi::Success;
}

Result get_info_v3(void* context, int collective, std::size_t bytes, int, float** costs,
                   int algorithms, int protocols, int*) {
    set_costs(context, collective, bytes, costs, algorithms, protocols);
    return abi::Success;
}

Result get_info(void* context, int collective, std::size_t bytes, int, float** costs,
                int algorithms, int protocols, int, int*) {
    set_costs(context, collective, bytes, costs, algorithms, protocols);
    return abi::Success;
}

Result end(void* context) {
    delete static_cast<Sizes*>(context);
    return abi::Success;
}

}  // namespace
}  // namespace afflux::nccl

#define AFFLUX_EXPORT extern "C" __attribute__((visibility("default")))

using namespace afflux::nccl;

AFFLUX_EXPORT const abi::TunerV2 ncclTunerPlugin_v2{kName, init, get_info_v2, end};
AFFLUX_EXPORT const abi::TunerV3 ncclTunerPlugin_v3{kName, init, get_info_v3, end};
AFFLUX_EXPORT const abi::TunerV4 ncclTunerPlugin_v4{kName, init, get_info, end};
AFFLUX_EXPORT const abi::TunerV5 ncclTunerPlugin_v5{kName, init_with_comm, get_info, end};
// NCCL's own chunks are taken.
AFFLUX_EXPORT const abi::TunerV6 ncclTunerPlugin_v6{kName, init_with_comm, get_info, end, nullptr};
