// The symbols that NCCL asks for: its tables of transfers, versions 8 to 12.
#include "nccl/net.hpp"
#include "nccl/plugin.hpp"
#include "nccl/profiled_transfer.hpp"

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

Result open(abi::Logger logger) {
    return guarded(abi::InvalidUsage, [&] {
        Plugin::get().open(logger);
        return abi::Success;
    });
}

Result open_profiled(abi::Logger logger, abi::Profiler profiler) {
    ProfiledTransfer::set_callback(profiler);
    return open(logger);
}

Result open_with_context(void** context, std::uint64_t, abi::CommConfig*, abi::Logger logger,
                         abi::Profiler profiler) {
    *context = nullptr;
    return open_profiled(logger, profiler);
}

Result listen_with_context(void*, int device, void* handle, void** listen_comm) {
    return net::listen(device, handle, listen_comm);
}

// No part of a connection is handed to a device.
void no_device(abi::DeviceHandle** device) {
    if (device != nullptr) *device = nullptr;
}

Result connect(int, void* handle, void** comm, abi::DeviceHandle** device) {
    no_device(device);
    return net::connect(handle, comm);
}

Result connect_configured(int, abi::CommConfig*, void* handle, void** comm,
                          abi::DeviceHandle** device) {
    no_device(device);
    return net::connect(handle, comm);
}

Result connect_with_context(void*, int, void* handle, void** comm, abi::DeviceHandle** device) {
    no_device(device);
    return net::connect(handle, comm);
}

Result accept(void* listen_comm, void** comm, abi::DeviceHandle** device) {
    no_device(device);
    return net::accept(listen_comm, comm);
}

// TCP needs no registration.
Result register_memory(void*, void*, std::size_t, int type, void** handle) {
    *handle = nullptr;
    return type == abi::Host ? abi::Success : abi::InvalidUsage;
}

Result no_dma_buffer(void*, void*, std::size_t, int, std::uint64_t, int, void**) {
    return abi::InvalidUsage;
}

Result deregister_memory(void*, void*) {
    return abi::Success;
}

template <typename Count>
Result send(void* comm, void* data, Count size, int, void*, void** request) {
    return net::send(comm, data, static_cast<std::size_t>(size), nullptr, request);
}

template <typename Count>
Result receive(void* comm, int parts, void** data, Count* sizes, int*, void**, void** request) {
    return net::receive(comm, parts, data[0], static_cast<std::size_t>(sizes[0]), nullptr, request);
}

Result send_profiled(void* comm, void* data, std::size_t size, int, void*, void* parent,
                     void** request) {
    return net::send(comm, data, size, parent, request);
}

Result receive_profiled(void* comm, int parts, void** data, std::size_t* sizes, int*, void**,
                        void** parents, void** request) {
    void* const parent = parents == nullptr ? nullptr : parents[0];
    return net::receive(comm, parts, data[0], sizes[0], parent, request);
}

Result flush(void*, int, void**, int*, void**, void** request) {
    *request = nullptr;
    return abi::Success;
}

Result no_device_handle(void*, void*, void**) {
    return abi::InvalidUsage;
}

Result receive_consumed(void*, int, void*) {
    return abi::Success;
}

Result finalize(void*) {
    return abi::Success;
}

Result set_attributes(void*, abi::Attributes*) {
    return abi::Success;
}

template <typename Properties>
constexpr abi::CollNetFront<Properties> front() {
    return {net::devices, get_properties<Properties>};
}

constexpr abi::NetMemory kMemory{accept, register_memory, no_dma_buffer, deregister_memory};
constexpr abi::NetEnd kEnd{.flush = flush,
                           .test = net::test,
                           .close_send = net::close,
                           .close_receive = net::close,
                           .close_listen = net::close_listen,
                           .device_handle = no_device_handle,
                           .receive_consumed = receive_consumed};

template <typename Table, typename Properties>
constexpr Table with_context() {
    return {.name = kName,
            .init = open_with_context,
            .front = front<Properties>(),
            .listen = listen_with_context,
            .connect = connect_with_context,
            .memory = kMemory,
            .transfers = {send_profiled, receive_profiled},
            .end = kEnd,
            .make_virtual = nullptr,
            .finalize = finalize,
            .set_attributes = set_attributes};
}

}  // namespace
}  // namespace afflux::nccl

#define AFFLUX_EXPORT extern "C" __attribute__((visibility("default")))

using namespace afflux::nccl;

AFFLUX_EXPORT const abi::NetV8 ncclNetPlugin_v8{.name = kName,
                                                .init = open,
                                                .front = front<abi::PropertiesV8>(),
                                                .listen = net::listen,
                                                .connect = connect,
                                                .memory = kMemory,
                                                .transfers = {send<int>, receive<int>},
                                                .end = kEnd};
AFFLUX_EXPORT const abi::NetV9 ncclNetPlugin_v9{
    .name = kName,
    .init = open,
    .front = front<abi::PropertiesV9>(),
    .listen = net::listen,
    .connect = connect,
    .memory = kMemory,
    .transfers = {send<std::size_t>, receive<std::size_t>},
    .end = kEnd,
    .make_virtual = nullptr};
AFFLUX_EXPORT const abi::NetV10 ncclNetPlugin_v10{.name = kName,
                                                  .init = open_profiled,
                                                  .front = front<abi::PropertiesV10>(),
                                                  .listen = net::listen,
                                                  .connect = connect_configured,
                                                  .memory = kMemory,
                                                  .transfers = {send_profiled, receive_profiled},
                                                  .end = kEnd,
                                                  .make_virtual = nullptr};
AFFLUX_EXPORT const abi::NetV11 ncclNetPlugin_v11 = with_context<abi::NetV11, abi::PropertiesV11>();
AFFLUX_EXPORT const abi::NetV12 ncclNetPlugin_v12 = with_context<abi::NetV12, abi::PropertiesV12>();
