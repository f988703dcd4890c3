// The project's declarations of UCX are those of its header, where that is installed.
#include <cstdio>

#include "carriers/ucx_abi.hpp"

#if __has_include(<ucp/api/ucp.h>)
#include <sys/uio.h>
#include <ucp/api/ucp.h>

#include <cstddef>

namespace {

using namespace afflux::carriers::ucx;

#define SAME_PLACE(own, field, theirs, their_field)                        \
    static_assert(offsetof(own, field) == offsetof(theirs, their_field) && \
                  sizeof(own::field) == sizeof(theirs::their_field))

static_assert(sizeof(Status) == sizeof(ucs_status_t));
static_assert(kOk == UCS_OK && kInProgress == UCS_INPROGRESS && kErrLast == UCS_ERR_LAST);
static_assert(kApiMajor == UCP_API_MAJOR && kApiMinor <= UCP_API_MINOR);

static_assert(sizeof(ContextParams) >= sizeof(ucp_params_t));
SAME_PLACE(ContextParams, field_mask, ucp_params_t, field_mask);
SAME_PLACE(ContextParams, features, ucp_params_t, features);
SAME_PLACE(ContextParams, mt_workers_shared, ucp_params_t, mt_workers_shared);
static_assert(ContextParams::kFeatures == UCP_PARAM_FIELD_FEATURES);
static_assert(ContextParams::kMtWorkersShared == UCP_PARAM_FIELD_MT_WORKERS_SHARED);
static_assert(ContextParams::kWakeup == UCP_FEATURE_WAKEUP);
static_assert(ContextParams::kStream == UCP_FEATURE_STREAM);

static_assert(sizeof(WorkerParams) >= sizeof(ucp_worker_params_t));
SAME_PLACE(WorkerParams, field_mask, ucp_worker_params_t, field_mask);
SAME_PLACE(WorkerParams, thread_mode, ucp_worker_params_t, thread_mode);
static_assert(WorkerParams::kThreadMode == UCP_WORKER_PARAM_FIELD_THREAD_MODE);
static_assert(WorkerParams::kSerialized == UCS_THREAD_MODE_SERIALIZED);

static_assert(sizeof(EndpointParams) >= sizeof(ucp_ep_params_t));
SAME_PLACE(EndpointParams, field_mask, ucp_ep_params_t, field_mask);
SAME_PLACE(EndpointParams, address, ucp_ep_params_t, address);
SAME_PLACE(EndpointParams, err_mode, ucp_ep_params_t, err_mode);
SAME_PLACE(EndpointParams, err_handler, ucp_ep_params_t, err_handler);
static_assert(EndpointParams::kRemoteAddress == UCP_EP_PARAM_FIELD_REMOTE_ADDRESS);
static_assert(EndpointParams::kErrMode == UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE);
static_assert(EndpointParams::kErrHandler == UCP_EP_PARAM_FIELD_ERR_HANDLER);
static_assert(EndpointParams::kErrModePeer == UCP_ERR_HANDLING_MODE_PEER);

static_assert(sizeof(RequestParams) >= sizeof(ucp_request_param_t));
SAME_PLACE(RequestParams, op_attr_mask, ucp_request_param_t, op_attr_mask);
SAME_PLACE(RequestParams, flags, ucp_request_param_t, flags);
SAME_PLACE(RequestParams, callback, ucp_request_param_t, cb);
SAME_PLACE(RequestParams, datatype, ucp_request_param_t, datatype);
static_assert(RequestParams::kDatatype == UCP_OP_ATTR_FIELD_DATATYPE);
static_assert(RequestParams::kFlags == UCP_OP_ATTR_FIELD_FLAGS);
static_assert(RequestParams::kIov == UCP_DATATYPE_IOV);
static_assert(RequestParams::kCloseForce == UCP_EP_CLOSE_FLAG_FORCE);

static_assert(sizeof(iovec) == sizeof(ucp_dt_iov_t));
SAME_PLACE(iovec, iov_base, ucp_dt_iov_t, buffer);
SAME_PLACE(iovec, iov_len, ucp_dt_iov_t, length);

}  // namespace

int main() {
    std::printf("as the header of UCX %d.%d says\n", UCP_API_MAJOR, UCP_API_MINOR);
}
#else
int main() {
    std::puts("skipped: no header of UCX");
}
#endif
