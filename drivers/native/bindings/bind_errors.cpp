// A worker's errors, as exception classes of Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <system_error>

#include "bindings/parts.hpp"
#include "worker/errors.hpp"

namespace nb = nanobind;

namespace afflux::bindings {
namespace {

// An exception class of the module's own, whose argument holds more than a text.
template <typename Error, typename ToPython>
void bind_error(nb::module_& module, const char* name) {
    nb::exception<Error> raised(module, name, PyExc_RuntimeError);
    nb::register_exception_translator(
        [](const std::exception_ptr& thrown, void* type) {
            try {
                std::rethrow_exception(thrown);
            } catch (const Error& error) {
                const nb::object argument = ToPython()(error);
                PyErr_SetObject(static_cast<PyObject*>(type), argument.ptr());
            }
        },
        raised.ptr());
}

struct Fingerprints {
    nb::object operator()(const worker::Disagreed& error) const {
        return error.fingerprints ? nb::cast(*error.fingerprints) : nb::none();
    }
};

struct Cause {
    nb::object operator()(const worker::Refused& error) const { return nb::cast(error.cause); }
};

struct Terms {
    nb::object operator()(const worker::DifferentJob& error) const { return nb::cast(error.found); }
};

}  // namespace

void bind_errors(nb::module_& module) {
    nb::exception<worker::Misbehaved>(module, "Misbehaved", PyExc_RuntimeError);
    bind_error<worker::Disagreed, Fingerprints>(module, "Disagreed");
    bind_error<worker::Refused, Cause>(module, "Refused");
    bind_error<worker::DifferentJob, Terms>(module, "DifferentJob");
    nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
        try {
            std::rethrow_exception(thrown);
        } catch (const std::system_error& error) {
            const nb::object arguments = nb::make_tuple(error.code().value(), error.what());
            PyErr_SetObject(PyExc_OSError, arguments.ptr());
        }
    });
}

}  // namespace afflux::bindings
