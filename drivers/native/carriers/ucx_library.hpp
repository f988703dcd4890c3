// UCX's libucp, opened when it is asked for.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "carriers/ucx_abi.hpp"

namespace afflux::carriers {

// Its functions, by their names there without "ucp_".
class UcxLibrary {
  public:
    // The library by its name or path. It stays open: its transports have threads and handlers of
    // their own. Throws std::runtime_error if it cannot be opened or lacks a function.
    static std::shared_ptr<const UcxLibrary> open(const std::string& name);

    // Where it lies, and its version.
    std::string path() const;
    std::string version() const;
    const char* text_of(ucx::Status status) const { return status_string(status); }

    using Status = ucx::Status;
    void (*get_version)(unsigned*, unsigned*, unsigned*);
    Status (*init_version)(unsigned, unsigned, const ucx::ContextParams*, const void*, void**);
    void (*cleanup)(void*);
    Status (*worker_create)(void*, const ucx::WorkerParams*, void**);
    void (*worker_destroy)(void*);
    Status (*worker_get_address)(void*, void**, std::size_t*);
    void (*worker_release_address)(void*, void*);
    Status (*worker_get_efd)(void*, int*);
    Status (*worker_arm)(void*);
    unsigned (*worker_progress)(void*);
    void* (*worker_flush_nbx)(void*, const ucx::RequestParams*);
    Status (*ep_create)(void*, const ucx::EndpointParams*, void**);
    void* (*ep_close_nbx)(void*, const ucx::RequestParams*);
    void* (*stream_send_nbx)(void*, const void*, std::size_t, const ucx::RequestParams*);
    void* (*stream_recv_data_nb)(void*, std::size_t*);
    void (*stream_data_release)(void*, void*);
    Status (*request_check_status)(void*);
    void (*request_free)(void*);
    const char* (*status_string)(Status);

  private:
    UcxLibrary() = default;
};

// Of one group: the devices and transports that UCX's own variables, such as UCX_TLS, choose.
class UcxContext {
  public:
    // Throws std::runtime_error.
    explicit UcxContext(std::shared_ptr<const UcxLibrary> library);
    ~UcxContext();
    UcxContext(const UcxContext&) = delete;
    UcxContext& operator=(const UcxContext&) = delete;

    const UcxLibrary& library() const { return *library_; }
    void* get() const { return context_; }

  private:
    const std::shared_ptr<const UcxLibrary> library_;
    void* context_ = nullptr;
};

}  // namespace afflux::carriers
