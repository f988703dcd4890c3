// The end of threads that still want Python's lock when the interpreter has ended.
#include <dlfcn.h>
#include <nanobind/nanobind.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>

#include "bindings/parts.hpp"

namespace nb = nanobind;

namespace afflux::bindings {
namespace {

std::terminate_handler before = nullptr;
pthread_t ending;
int (*is_finalizing)() = nullptr;

// By name, because the stable ABI has it from 3.13 on, and the same extension serves 3.12.
void find_is_finalizing() {
    void* found = dlsym(RTLD_DEFAULT, "Py_IsFinalizing");
    if (found == nullptr) found = dlsym(RTLD_DEFAULT, "_Py_IsFinalizing");
    is_finalizing = reinterpret_cast<int (*)()>(found);
}

bool python_has_ended() {
    return (is_finalizing != nullptr && is_finalizing()) || !Py_IsInitialized();
}

// CPython before 3.14 ends such a thread with pthread_exit, which unwinds the stack: through the
// destructors in which torch, pybind11 and nanobind take the lock again, which no exception may
// leave, and through those of objects that may only be dropped with the lock. Either terminates the
// process. From 3.14 on CPython lets the thread sleep for ever.
[[noreturn]] void sleep_or_terminate() {
    if (python_has_ended() && !pthread_equal(pthread_self(), ending))
        for (;;) pause();
    before();
    std::abort();
}

void let_threads_sleep() {
    if (before != nullptr) return;
    ending = pthread_self();
    find_is_finalizing();
    before = std::set_terminate(sleep_or_terminate);
}

}  // namespace

void bind_exit(nb::module_& module) {
    module.def(
        "let_threads_sleep", &let_threads_sleep,
        "Let threads that cannot outlive the interpreter sleep when it has ended, instead of "
        "aborting the process. Called by the thread that ends it.");
}

}  // namespace afflux::bindings
