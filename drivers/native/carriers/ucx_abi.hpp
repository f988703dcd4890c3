// The part that this project uses of the binary interface of UCX's libucp, version 1.12 and later.
//
// The library is opened when it is asked for, so a build needs no header of it, and every build can
// use it. Names and values are those of ucp/api/ucp.h; carriers_ucx_abi_test compares them with it
// where it is installed. A structure says in `field_mask` which of its fields are set, and the
// library reads no others.
#pragma once

#include <cstddef>
#include <cstdint>

namespace afflux::carriers::ucx {

// Of the enumeration ucs_status_t; errors are negative.
using Status = std::int8_t;
inline constexpr Status kOk = 0, kInProgress = 1, kErrLast = -100;

// Of a non-blocking call: null if it is done, an error, or a request.
inline bool is_request(const void* given) {
    const auto value = reinterpret_cast<std::uintptr_t>(given);
    return value - 1 < static_cast<std::uintptr_t>(std::intptr_t{kErrLast}) - 1;
}
inline Status status_of(const void* given) {
    return is_request(given) ? kInProgress
                             : static_cast<Status>(reinterpret_cast<std::intptr_t>(given));
}

inline constexpr unsigned kApiMajor = 1, kApiMinor = 12;

struct ContextParams {  // ucp_params_t
    static constexpr std::uint64_t kFeatures = 1, kMtWorkersShared = 1 << 5;
    static constexpr std::uint64_t kWakeup = 1 << 4, kStream = 1 << 5;

    std::uint64_t field_mask, features;
    std::size_t request_size;
    void (*request_init)(void*);
    void (*request_cleanup)(void*);
    std::uint64_t tag_sender_mask;
    int mt_workers_shared;
    std::uint64_t later[8];
};

struct WorkerParams {  // ucp_worker_params_t
    static constexpr std::uint64_t kThreadMode = 1;
    static constexpr int kSerialized = 1;

    std::uint64_t field_mask;
    int thread_mode;
    std::uint64_t later[32];
};

using ErrorHandler = void (*)(void* argument, void* endpoint, Status status);

struct EndpointParams {  // ucp_ep_params_t
    static constexpr std::uint64_t kRemoteAddress = 1, kErrMode = 1 << 1, kErrHandler = 1 << 2;
    static constexpr int kErrModePeer = 1;

    std::uint64_t field_mask;
    const void* address;
    int err_mode;
    struct {
        ErrorHandler cb;
        void* arg;
    } err_handler;
    std::uint64_t later[16];
};

struct RequestParams {  // ucp_request_param_t
    static constexpr std::uint32_t kDatatype = 1 << 3, kFlags = 1 << 4;
    static constexpr std::uint64_t kIov = 2;  // of struct iovec, which ucp_dt_iov_t is
    static constexpr std::uint32_t kCloseForce = 1;

    std::uint32_t op_attr_mask, flags;
    void* request;
    void (*callback)();
    std::uint64_t datatype;
    std::uint64_t later[16];
};

}  // namespace afflux::carriers::ucx
