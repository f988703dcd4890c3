// Python objects that C++ threads hold and drop without Python's lock.
#pragma once

#include <cxxabi.h>
#include <torch/csrc/Exceptions.h>
// A duration becomes a timedelta by this alone.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "turn.h"

namespace afflux {

namespace py = pybind11;

// CPython before 3.14 ends a thread that wants Python's lock after the interpreter has ended: it
// unwinds the stack, past whatever catches all exceptions to go on. From 3.14 on it lets the thread
// sleep for ever, and so does this.
[[noreturn]] inline void sleep_for_ever() {
    for (;;) pause();
}

class PythonLock {
  public:
    PythonLock() try {
    } catch (abi::__forced_unwind&) {
        sleep_for_ever();
    }

  private:
    const py::gil_scoped_acquire held_;
};

// A reference that any thread may copy, move or drop. To use the object, hold Python's lock.
class PythonObject {
  public:
    PythonObject() = default;
    explicit PythonObject(py::object object)
        : held_(new py::object(std::move(object)), [](py::object* dropped) {
              // The interpreter may be gone: then so is the object.
              if (!Py_IsInitialized()) return;
              const PythonLock lock;
              delete dropped;
          }) {}

    explicit operator bool() const { return held_ != nullptr; }
    const py::object& get() const { return *held_; }

  private:
    std::shared_ptr<py::object> held_;
};

// A Python object as `Turn` hands it over.
inline Handed handed(py::object object) {
    return std::make_shared<PythonObject>(std::move(object));
}
inline py::object taken(const Handed& handed) {
    return handed ? static_cast<const PythonObject*>(handed.get())->get() : py::none();
}

// Throws a Python exception through C++; torch hands it on to Python as it is.
[[noreturn]] inline void throw_exception(const py::object& exception) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
    python_error error;
    error.persist();
    throw error;
}

// Keeps torch.compile from tracing what C++ calls, in the thread that runs a compiled function.
class NotTraced {
  public:
    NotTraced() {
        static const py::object* const set = [] {
            const auto module = py::module_::import("torch._C._dynamo.eval_frame");
            return new py::object(module.attr("set_eval_frame"));
        }();
        set_ = set;
        before_ = (*set_)(py::none());
    }
    ~NotTraced() {
        if (before_.is_none()) return;
        const py::error_scope raised;
        try {
            (*set_)(before_);
        } catch (py::error_already_set& error) {
            error.discard_as_unraisable("torch.compile's callback");
        }
    }
    NotTraced(const NotTraced&) = delete;
    NotTraced& operator=(const NotTraced&) = delete;

  private:
    const py::object* set_;
    py::object before_;
};

// Calls into Python, with its lock; a Python exception is thrown on as torch's own class, which any
// thread may hold and drop.
template <typename Call>
auto with_python(const Call& call) {
    const PythonLock lock;
    try {
        const NotTraced not_traced;
        return call();
    } catch (abi::__forced_unwind&) {
        sleep_for_ever();
    } catch (py::error_already_set& raised) {
        raised.restore();
        python_error error;
        error.persist();
        throw error;
    }
}

}  // namespace afflux
