// Torch's requests to a group as a whole: its timeout, its end, its parts, whether it has failed.
#include <unistd.h>

#include "backend.hpp"

namespace afflux {

void AffluxBackend::setTimeout(std::chrono::milliseconds timeout) {
    with_python([&] { core_.get().attr("set_timeout")(timeout); });
}

void AffluxBackend::setGroupUid(const std::string& uid) {
    Backend::setGroupUid(uid);
    // So that its entries in torch's flight recorder name the group.
    gloo()->setGroupUid(uid);
}

c10::intrusive_ptr<c10d::Backend::Options> AffluxBackend::getBackendOptions() {
    const double timeout_s =
        with_python([&] { return core_.get().attr("timeout_s").cast<double>(); });
    return c10::make_intrusive<Options>(
        "afflux", std::chrono::milliseconds(static_cast<std::int64_t>(timeout_s * 1e3)));
}

c10::intrusive_ptr<c10d::Backend> AffluxBackend::split(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<Backend::Options>& options) {
    return with_python([&] {
        const auto timeout = options ? options->timeout : kBackendDefaultTimeout;
        const std::string name = options ? options->group_name : std::string();
        const py::object made = splitter_.get()(core_.get(), store, ranks, timeout, name);
        return made.is_none() ? c10::intrusive_ptr<c10d::Backend>()
                              : made.cast<c10::intrusive_ptr<c10d::Backend>>();
    });
}

c10::intrusive_ptr<c10d::Backend> AffluxBackend::shrink(
    const std::vector<std::int64_t>& excluded, int flags,
    const c10::intrusive_ptr<Backend::Options>& /*options*/) {
    // torch's flags: 0, or 1 for calls in flight to be given up.
    return with_python([&] {
        return shrinker_.get()(core_.get(), excluded, flags != 0)
            .cast<c10::intrusive_ptr<c10d::Backend>>();
    });
}

c10d::ErrorType AffluxBackend::getError() {
    // Callers ask often: most answers need no Python.
    if (!turn_->closed.load() || getpid() != process_) return c10d::ErrorType::SUCCESS;
    const auto kind =
        with_python([&] { return core_.get().attr("error_kind").cast<std::string>(); });
    if (kind == "TIMEOUT") return c10d::ErrorType::TIMEOUT;
    if (kind == "REMOTE_ERROR") return c10d::ErrorType::REMOTE_ERROR;
    return kind == "SUCCESS" ? c10d::ErrorType::SUCCESS : c10d::ErrorType::COMM_ERROR;
}

void AffluxBackend::shutdown() {
    with_python([&] { core_.get().attr("shutdown")(); });
}

void AffluxBackend::abort() {
    with_python([&] { core_.get().attr("abort")(); });
}

}  // namespace afflux
