// The tables and structs of NCCL's interface for network plugins, versions 8 to 12.
//
// This is what a plugin of NCCL 2.20 to 2.32 must agree on with it: declared from its public
// interface, so that nothing of NCCL is needed to compile. Sizes are asserted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace afflux::nccl::abi {

// ncclResult_t.
enum Result : int {
    Success = 0,
    SystemError = 2,
    InternalError = 3,
    InvalidArgument = 4,
    InvalidUsage = 5,
    RemoteError = 6,
};

// ncclDataType_t and ncclRedOp_t, as far as they are reduced here.
enum DataType : int { Int32 = 2, Float16 = 6, Float32 = 7, Bfloat16 = 9 };
enum RedOp : int { Sum = 0, Prod = 1, Max = 2, Min = 3 };

// Kinds of memory.
enum Pointer : int { Host = 1 };

inline constexpr std::size_t kHandleBytes = 128;
inline constexpr std::size_t kMaxNetBytes = std::size_t{1} << 40;
inline constexpr std::size_t kMaxCollBytes = std::size_t{512} << 20;

enum LogLevel : int { Warn = 2, Info = 3 };
enum LogSubsystem : unsigned long { InitLog = 0x1, NetLog = 0x10, TuningLog = 0x40 };
using Logger = void (*)(LogLevel level, unsigned long flags, const char* file, int line,
                        const char* format, ...);

// From version 10 on networks get this function for events of their own. A start sets `event`.
using Profiler = Result (*)(void** event, int type, void* parent, std::int64_t plugin, void* data);
enum ProfilerEvent : int { EventStart = 0, EventStop = 1 };

// Version 1 of the events of NCCL's transport over sockets, and their number.
struct SocketEvent {
    std::uint8_t type;
    struct {
        int number;
        int receives;
        std::size_t bytes;
    } socket;
};
static_assert(sizeof(SocketEvent) == 24);
inline constexpr std::uint8_t kSocketEvent = 1;
inline constexpr std::int64_t kSocketEvents = (2 << 16) | 1;

struct DeviceHandle {
    int type;
    int version;
    void* handle;
    std::size_t size;
    int needs_proxy_progress;
};
static_assert(sizeof(DeviceHandle) == 32);

struct PropertiesV8 {
    char* name;
    char* pci_path;
    std::uint64_t guid;
    int pointer_support;
    int registration_is_global;
    int speed;  // Mbit/s
    int port;
    float latency;
    int max_comms;
    int max_receives;
    int device_type;
    int device_version;
};
static_assert(sizeof(PropertiesV8) == 64);

template <int kDevices>
struct VirtualDevice {
    int count;
    int devices[kDevices];
};

struct PropertiesV9 {
    char* name;
    char* pci_path;
    std::uint64_t guid;
    int pointer_support;
    int registration_is_global;
    int force_flush;
    int speed;
    int port;
    float latency;
    int max_comms;
    int max_receives;
    int device_type;
    int device_version;
    VirtualDevice<4> virtual_device;
    std::size_t max_p2p_bytes;
    std::size_t max_collective_bytes;
};
static_assert(sizeof(PropertiesV9) == 104);
using PropertiesV10 = PropertiesV9;

struct PropertiesV11 {
    PropertiesV9 base;
    int max_multi_request_size;
};
static_assert(sizeof(PropertiesV11) == 112);

struct PropertiesV12 {
    char* name;
    char* pci_path;
    std::uint64_t guid;
    int pointer_support;
    int registration_is_global;
    int force_flush;
    int speed;
    int port;
    float latency;
    int max_comms;
    int max_receives;
    int device_type;
    int device_version;
    VirtualDevice<8> virtual_device;
    std::size_t max_p2p_bytes;
    std::size_t max_collective_bytes;
    int max_multi_request_size;
    std::int16_t rail;
    std::int16_t plane;
};
static_assert(sizeof(PropertiesV12) == 128);

// Scattered memory of all-gathers and reduce-scatters, of which nothing is offered.
struct Segment;

// The functions that do not differ between versions, by the types that do.
template <typename Properties>
struct CollNetFront {
    Result (*devices)(int* count);
    Result (*get_properties)(int device, Properties* properties);
};

template <typename Count>
struct CollNetMiddle {
    Result (*connect)(void* handles[], int ranks, int rank, void* listen_comm, void** comm);
    Result (*reduce_support)(int data_type, int red_op, int* supported);
    Result (*register_memory)(void* comm, void* data, std::size_t size, int type, void** handle);
    Result (*register_dma_buffer)(void* comm, void* data, std::size_t size, int type,
                                  std::uint64_t offset, int file, void** handle);
    Result (*deregister_memory)(void* comm, void* handle);
    Result (*all_reduce)(void* comm, void* send, void* receive, Count count, int data_type,
                         int red_op, void* send_handle, void* receive_handle, void** request);
    Result (*all_gather)(void* comm, void* send, int parts, Segment* receive, std::size_t bytes,
                         std::size_t window_offset, std::size_t window_bytes, void* send_handle,
                         void** request);
    Result (*reduce_scatter)(void* comm, int parts, Segment* send, void* receive, std::size_t bytes,
                             std::size_t window_offset, std::size_t window_bytes, int data_type,
                             int red_op, void* receive_handle, void** request);
    Result (*flush)(void* comm, void* data, int size, void* handle, void** request);
    Result (*test)(void* request, int* done, int* size);
    Result (*close)(void* comm);
    Result (*close_listen)(void* listen_comm);
};

using PlainInit = Result (*)(Logger log);
using PlainListen = Result (*)(int device, void* handle, void** listen_comm);
using ContextListen = Result (*)(void* context, int device, void* handle, void** listen_comm);
using Finalize = Result (*)(void* context);
// Makes one device of several. Where it is null, as here, NCCL does not try.
template <int kDevices>
using MakeVirtual = Result (*)(int* device, VirtualDevice<kDevices>* properties);

struct CollNetV8 {
    const char* name;
    PlainInit init;
    CollNetFront<PropertiesV8> front;
    PlainListen listen;
    CollNetMiddle<int> middle;
};
static_assert(sizeof(CollNetV8) == 17 * sizeof(void*));

struct CollNetV9 {
    const char* name;
    PlainInit init;
    CollNetFront<PropertiesV9> front;
    PlainListen listen;
    CollNetMiddle<std::size_t> middle;
    MakeVirtual<4> make_virtual;
};
static_assert(sizeof(CollNetV9) == 18 * sizeof(void*));
using CollNetV10 = CollNetV9;

template <typename Properties, int kDevices>
struct CollNetWithContext {
    const char* name;
    Result (*init)(void** context, std::uint64_t comm, Logger log);
    CollNetFront<Properties> front;
    ContextListen listen;
    CollNetMiddle<std::size_t> middle;
    MakeVirtual<kDevices> make_virtual;
    Finalize finalize;
};
using CollNetV11 = CollNetWithContext<PropertiesV11, 4>;
using CollNetV12 = CollNetWithContext<PropertiesV12, 8>;
static_assert(sizeof(CollNetV11) == 19 * sizeof(void*));
static_assert(sizeof(CollNetV12) == 19 * sizeof(void*));

// Wishes of a communicator, and its findings about connections: both are only advice.
struct CommConfig;
struct Attributes;

struct NetEnd {
    Result (*flush)(void* comm, int parts, void** data, int* sizes, void** handles, void** request);
    Result (*test)(void* request, int* done, int* sizes);
    Result (*close_send)(void* comm);
    Result (*close_receive)(void* comm);
    Result (*close_listen)(void* listen_comm);
    Result (*device_handle)(void* comm, void* handle, void** out);
    Result (*receive_consumed)(void* comm, int parts, void* request);
};

struct NetMemory {
    Result (*accept)(void* listen_comm, void** comm, DeviceHandle** device);
    Result (*register_memory)(void* comm, void* data, std::size_t size, int type, void** handle);
    Result (*register_dma_buffer)(void* comm, void* data, std::size_t size, int type,
                                  std::uint64_t offset, int file, void** handle);
    Result (*deregister_memory)(void* comm, void* handle);
};

template <typename Count>
struct PlainTransfers {
    Result (*send)(void* comm, void* data, Count size, int tag, void* handle, void** request);
    Result (*receive)(void* comm, int parts, void** data, Count* sizes, int* tags, void** handles,
                      void** request);
};

// With parents of the profiler's events.
struct ProfiledTransfers {
    Result (*send)(void* comm, void* data, std::size_t size, int tag, void* handle, void* parent,
                   void** request);
    Result (*receive)(void* comm, int parts, void** data, std::size_t* sizes, int* tags,
                      void** handles, void** parents, void** request);
};

using PlainConnect = Result (*)(int device, void* handle, void** comm, DeviceHandle** dev);

struct NetV8 {
    const char* name;
    PlainInit init;
    CollNetFront<PropertiesV8> front;
    PlainListen listen;
    PlainConnect connect;
    NetMemory memory;
    PlainTransfers<int> transfers;
    NetEnd end;
};
static_assert(sizeof(NetV8) == 19 * sizeof(void*));

struct NetV9 {
    const char* name;
    PlainInit init;
    CollNetFront<PropertiesV9> front;
    PlainListen listen;
    PlainConnect connect;
    NetMemory memory;
    PlainTransfers<std::size_t> transfers;
    NetEnd end;
    MakeVirtual<4> make_virtual;
};
static_assert(sizeof(NetV9) == 20 * sizeof(void*));

struct NetV10 {
    const char* name;
    Result (*init)(Logger log, Profiler profiler);
    CollNetFront<PropertiesV10> front;
    PlainListen listen;
    Result (*connect)(int device, CommConfig* config, void* handle, void** comm,
                      DeviceHandle** device_handle);
    NetMemory memory;
    ProfiledTransfers transfers;
    NetEnd end;
    MakeVirtual<4> make_virtual;
};
static_assert(sizeof(NetV10) == 20 * sizeof(void*));

template <typename Properties, int kDevices>
struct NetWithContext {
    const char* name;
    Result (*init)(void** context, std::uint64_t comm, CommConfig* config, Logger log,
                   Profiler profiler);
    CollNetFront<Properties> front;
    ContextListen listen;
    Result (*connect)(void* context, int device, void* handle, void** comm,
                      DeviceHandle** device_handle);
    NetMemory memory;
    ProfiledTransfers transfers;
    NetEnd end;
    MakeVirtual<kDevices> make_virtual;
    Finalize finalize;
    Result (*set_attributes)(void* context, Attributes* attributes);
};
using NetV11 = NetWithContext<PropertiesV11, 4>;
using NetV12 = NetWithContext<PropertiesV12, 8>;
static_assert(sizeof(NetV11) == 22 * sizeof(void*));
static_assert(sizeof(NetV12) == 22 * sizeof(void*));

}  // namespace afflux::nccl::abi
