// The cost of the stages of the data path, for `afflux info` and the benchmarks.
#include <nanobind/nanobind.h>

#include <cstddef>

#include "bindings/parts.hpp"
#include "costs/stages.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace afflux::bindings {

void bind_costs(nb::module_& module) {
    const auto no_python = nb::call_guard<nb::gil_scoped_release>();
    nb::class_<costs::Cost>(module, "Cost", "The cost of a stage.")
        .def_ro("seconds", &costs::Cost::seconds, "Of processor time.")
        .def_ro("bytes", &costs::Cost::bytes, "Of blocks that have passed.")
        .def_ro("calls", &costs::Cost::calls, "System calls.");
    nb::class_<costs::Exchange>(module, "Exchange", "The cost of joining, sending and receiving.")
        .def_ro("join", &costs::Exchange::join)
        .def_ro("send", &costs::Exchange::send)
        .def_ro("receive", &costs::Exchange::receive);
    module.def("counter_hz", &costs::counter_hz, no_python,
               "Return the rate of the processor's time-stamp counter; 0 if it is not known.");
    module.def("copy_packets", &costs::copy_packets, "lanes"_a, "bytes"_a, no_python,
               "Copy packets as a worker does that have come.");
    module.def("merge_packets", &costs::merge_packets, "workers"_a, "lanes"_a, "slots"_a, "bytes"_a,
               no_python, "Add packets to slots as an aggregator does.");
    module.def("exchange_packets", &costs::exchange_packets, "lanes"_a, "at_once"_a, "bytes"_a,
               "gathered"_a, "offloads"_a, no_python,
               "Send packets to a socket of this thread, and receive them.");
    module.def("empty_calls", &costs::empty_calls, "calls"_a, no_python,
               "Ask a socket for packets to which none have come.");
}

}  // namespace afflux::bindings
