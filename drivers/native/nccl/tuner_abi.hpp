// The tables of NCCL's interface for tuners, versions 2 to 6, as net_abi.hpp has those for
// networks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nccl/net_abi.hpp"

namespace afflux::nccl::abi {

// ncclFunc_t, and the algorithms and protocols that are looked at here.
enum Collective : int { AllReduce = 4 };
enum Algorithm : int { CollNetDirect = 2, CollNetChain = 3, Nvls = 4 };
enum Protocol : int { Simple = 2 };

// The cost of an algorithm that is not to be used.
inline constexpr float kIgnored = -1.0F;

using TunerInit = Result (*)(std::size_t ranks, std::size_t nodes, Logger log, void** context);
using TunerEnd = Result (*)(void* context);

struct TunerV2 {
    const char* name;
    TunerInit init;
    Result (*get_info)(void* context, int collective, std::size_t bytes, int collnet, int nvls,
                       int operations, int* algorithm, int* protocol, int* channels);
    TunerEnd destroy;
};
static_assert(sizeof(TunerV2) == 4 * sizeof(void*));

struct TunerV3 {
    const char* name;
    TunerInit init;
    Result (*get_info)(void* context, int collective, std::size_t bytes, int operations,
                       float** costs, int algorithms, int protocols, int* channels);
    TunerEnd destroy;
};
static_assert(sizeof(TunerV3) == 4 * sizeof(void*));

using GetInfoV4 = Result (*)(void* context, int collective, std::size_t bytes, int operations,
                             float** costs, int algorithms, int protocols, int registered,
                             int* channels);

struct TunerV4 {
    const char* name;
    TunerInit init;
    GetInfoV4 get_info;
    TunerEnd destroy;
};
static_assert(sizeof(TunerV4) == 4 * sizeof(void*));

// Neither is looked at.
struct NvlinkDomains;
struct TunerConstants;

using TunerInitV5 = Result (*)(void** context, std::uint64_t comm, std::size_t ranks,
                               std::size_t nodes, Logger log, NvlinkDomains* domains,
                               TunerConstants* constants);

struct TunerV5 {
    const char* name;
    TunerInitV5 init;
    GetInfoV4 get_info;
    TunerEnd finalize;
};
static_assert(sizeof(TunerV5) == 4 * sizeof(void*));

struct TunerV6 {
    const char* name;
    TunerInitV5 init;
    GetInfoV4 get_info;
    TunerEnd finalize;
    Result (*get_chunk_size)(void* context, int collective, std::size_t bytes, int algorithm,
                             int protocol, int channels, std::size_t* size);
};
static_assert(sizeof(TunerV6) == 5 * sizeof(void*));

}  // namespace afflux::nccl::abi
