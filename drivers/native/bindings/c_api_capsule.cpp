#include "bindings/c_api_capsule.hpp"

namespace nb = nanobind;

namespace afflux::bindings {
namespace {

using Share = std::shared_ptr<afflux_group>;

void drop(PyObject* capsule) {
    delete static_cast<Share*>(PyCapsule_GetContext(capsule));
}

}  // namespace

nb::object capsule_of(const std::shared_ptr<afflux_group>& group) {
    auto share = std::make_unique<Share>(group);
    // Python knows a capsule by its pointer and name only, so that what it keeps is its context.
    PyObject* const capsule =
        PyCapsule_New(const_cast<afflux_calls*>(&group->calls()), AFFLUX_CALLS, drop);
    if (capsule == nullptr) nb::raise_python_error();
    if (PyCapsule_SetContext(capsule, share.get()) != 0) {
        Py_DECREF(capsule);
        nb::raise_python_error();
    }
    share.release();
    return nb::steal(capsule);
}

}  // namespace afflux::bindings
