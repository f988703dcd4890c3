#include "reconfigurable.hpp"

#ifdef C10D_BACKEND_HAS_RECONFIGURE

namespace afflux {

ReconfigurableBackend::Pointer ReconfigurableBackend::latest() const {
    if (auto found = find()) return found;
    throw std::runtime_error(
        "afflux: this group was made with enable_reconfigure and has no ranks yet; "
        "torch.distributed._reconfigure gives it some");
}

c10d::ReconfigureHandle ReconfigurableBackend::get_reconfigure_handle() const {
    return with_python([&] { return changer_.get().attr("handle")().cast<std::string>(); });
}

WorkPointer ReconfigurableBackend::reconfigure(const c10d::ReconfigureOptions& options) {
    const Pointer made = with_python([&] {
        const py::object handles = std::visit(
            [](const auto& given) -> py::object { return py::cast(given); }, options.handles);
        const py::object timeout = options.timeout ? py::cast(*options.timeout) : py::none();
        return changer_.get().attr("reconfigure")(options.uuid, handles, timeout).cast<Pointer>();
    });
    if (!pg_uid_.empty()) made->setGroupUid(pg_uid_);
    Pointer before = made;
    {
        const std::scoped_lock lock(mutex_);
        before.swap(latest_);
        rank_ = made->getRank();
        size_ = made->getSize();
    }
    return c10::make_intrusive<FinishedWork>(Tensors(), 0);
}

void ReconfigurableBackend::setTimeout(std::chrono::milliseconds timeout) {
    with_python([&] { changer_.get().attr("set_timeout")(timeout); });
}

void ReconfigurableBackend::setGroupUid(const std::string& uid) {
    Backend::setGroupUid(uid);
    if (const auto found = find()) found->setGroupUid(uid);
}

c10::intrusive_ptr<c10d::Backend::Options> ReconfigurableBackend::getBackendOptions() {
    const double timeout_s =
        with_python([&] { return changer_.get().attr("timeout_s").cast<double>(); });
    return c10::make_intrusive<Options>(
        "afflux", std::chrono::milliseconds(static_cast<std::int64_t>(timeout_s * 1e3)));
}

void ReconfigurableBackend::abort() {
    with_python([&] { changer_.get().attr("abort")(); });
}

}  // namespace afflux

#endif
