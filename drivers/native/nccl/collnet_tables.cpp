// The symbols that NCCL asks for: its tables of collectives, versions 8 to 12.
#include <type_traits>

#include "nccl/collnet.hpp"
#include "nccl/plugin.hpp"

namespace afflux::nccl {
namespace {

using abi::Result;

template <typename Properties>
Result get_properties(int device, Properties* out) {
    return guarded(abi::InvalidArgument, [&] {
        fill(device, *out);
        return abi::Success;
    });
}

Result no_dma_buffer(void*, void*, std::size_t, int, std::uint64_t, int, void**) {
    return abi::InvalidUsage;
}

// Memory of the host needs none.
Result flush(void*, void*, int, void*, void** request) {
    *request = nullptr;
    return abi::Success;
}

template <typename Count>
Result all_reduce(void* comm, void* send, void* receive, Count count, int data_type, int red_op,
                  void* send_handle, void*, void** request) {
    return collnet::all_reduce(comm, send, receive, static_cast<std::size_t>(count), data_type,
                               red_op, send_handle, request);
}

Result init_with_context(void** context, std::uint64_t, abi::Logger logger) {
    *context = nullptr;
    return collnet::init(logger);
}

Result listen_with_context(void*, int device, void* handle, void** listen_comm) {
    return collnet::listen(device, handle, listen_comm);
}

Result finalize(void*) {
    return abi::Success;
}

template <typename Properties>
constexpr abi::CollNetFront<Properties> front() {
    return {collnet::devices, get_properties<Properties>};
}

// NCCL looks whether all-gathers and reduce-scatters are there, and leaves to its rings what is
// not.
template <typename Count>
constexpr abi::CollNetMiddle<Count> middle() {
    return {.connect = collnet::connect,
            .reduce_support = collnet::reduce_support,
            .register_memory = collnet::register_memory,
            .register_dma_buffer = no_dma_buffer,
            .deregister_memory = collnet::deregister_memory,
            .all_reduce = all_reduce<Count>,
            .all_gather = nullptr,
            .reduce_scatter = nullptr,
            .flush = flush,
            .test = collnet::test,
            .close = collnet::close,
            .close_listen = collnet::close_listen};
}

template <typename Table, typename Properties>
constexpr Table with_context() {
    return {.name = kName,
            .init = init_with_context,
            .front = front<Properties>(),
            .listen = listen_with_context,
            .middle = middle<std::size_t>(),
            .make_virtual = nullptr,
            .finalize = finalize};
}

constexpr abi::CollNetV9 kV9{.name = kName,
                             .init = collnet::init,
                             .front = front<abi::PropertiesV9>(),
                             .listen = collnet::listen,
                             .middle = middle<std::size_t>(),
                             .make_virtual = nullptr};

}  // namespace
}  // namespace afflux::nccl

#define AFFLUX_EXPORT extern "C" __attribute__((visibility("default")))

using namespace afflux::nccl;

AFFLUX_EXPORT const abi::CollNetV8 ncclCollNetPlugin_v8{.name = kName,
                                                        .init = collnet::init,
                                                        .front = front<abi::PropertiesV8>(),
                                                        .listen = collnet::listen,
                                                        .middle = middle<int>()};
AFFLUX_EXPORT const abi::CollNetV9 ncclCollNetPlugin_v9 = kV9;
AFFLUX_EXPORT const abi::CollNetV10 ncclCollNetPlugin_v10 = kV9;
AFFLUX_EXPORT const abi::CollNetV11 ncclCollNetPlugin_v11 =
    with_context<abi::CollNetV11, abi::PropertiesV11>();
AFFLUX_EXPORT const abi::CollNetV12 ncclCollNetPlugin_v12 =
    with_context<abi::CollNetV12, abi::PropertiesV12>();
