#include "carriers/ucx_library.hpp"

#include <dlfcn.h>

#include <stdexcept>
#include <utility>

namespace afflux::carriers {
namespace {

template <typename Function>
void look_up(void* library, const char* name, Function& found) {
    void* const symbol = ::dlsym(library, name);
    if (!symbol) throw std::runtime_error(std::string("the UCX library has no ") + name);
    found = reinterpret_cast<Function>(symbol);
}

}  // namespace

std::shared_ptr<const UcxLibrary> UcxLibrary::open(const std::string& name) {
    void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) throw std::runtime_error(::dlerror());
    std::shared_ptr<UcxLibrary> opened(new UcxLibrary);
    look_up(library, "ucp_get_version", opened->get_version);
    look_up(library, "ucp_init_version", opened->init_version);
    look_up(library, "ucp_cleanup", opened->cleanup);
    look_up(library, "ucp_worker_create", opened->worker_create);
    look_up(library, "ucp_worker_destroy", opened->worker_destroy);
    look_up(library, "ucp_worker_get_address", opened->worker_get_address);
    look_up(library, "ucp_worker_release_address", opened->worker_release_address);
    look_up(library, "ucp_worker_get_efd", opened->worker_get_efd);
    look_up(library, "ucp_worker_arm", opened->worker_arm);
    look_up(library, "ucp_worker_progress", opened->worker_progress);
    look_up(library, "ucp_worker_flush_nbx", opened->worker_flush_nbx);
    look_up(library, "ucp_ep_create", opened->ep_create);
    look_up(library, "ucp_ep_close_nbx", opened->ep_close_nbx);
    look_up(library, "ucp_stream_send_nbx", opened->stream_send_nbx);
    look_up(library, "ucp_stream_recv_data_nb", opened->stream_recv_data_nb);
    look_up(library, "ucp_stream_data_release", opened->stream_data_release);
    look_up(library, "ucp_request_check_status", opened->request_check_status);
    look_up(library, "ucp_request_free", opened->request_free);
    look_up(library, "ucs_status_string", opened->status_string);
    unsigned major, minor, release;
    opened->get_version(&major, &minor, &release);
    if (major != ucx::kApiMajor || minor < ucx::kApiMinor)
        throw std::runtime_error("UCX " + opened->version() + " is too old, 1.12 is the first");
    return opened;
}

std::string UcxLibrary::path() const {
    Dl_info found;
    const bool known = ::dladdr(reinterpret_cast<void*>(init_version), &found) != 0;
    return known ? found.dli_fname : "";
}

std::string UcxLibrary::version() const {
    unsigned major, minor, release;
    get_version(&major, &minor, &release);
    return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
}

UcxContext::UcxContext(std::shared_ptr<const UcxLibrary> library) : library_(std::move(library)) {
    ucx::ContextParams params{};
    params.field_mask = params.kFeatures | params.kMtWorkersShared;
    params.features = params.kStream | params.kWakeup;
    params.mt_workers_shared = 1;
    const ucx::Status status =
        library_->init_version(ucx::kApiMajor, ucx::kApiMinor, &params, nullptr, &context_);
    if (status != ucx::kOk)
        throw std::runtime_error(std::string("UCX cannot be used: ") + library_->text_of(status));
}

UcxContext::~UcxContext() {
    library_->cleanup(context_);
}

}  // namespace afflux::carriers
