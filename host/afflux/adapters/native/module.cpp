// The C++ adapter's interface to Python.
#include <torch/csrc/utils/pybind.h>

#include "backend.hpp"
#include "completion.hpp"
#include "reconfigurable.hpp"
#include "turn.h"
#include "works.hpp"

namespace afflux {

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    const py::call_guard<py::gil_scoped_release> no_python;
    // Finds torch's function while no other thread can look for it, too.
    const NotTraced first;
    py::class_<Turn, std::shared_ptr<Turn>>(module, "Turn")
        .def(py::init<>())
        .def("try_enter", &Turn::try_enter)
        .def("enter",
             [](Turn& turn) {
                 Handed operation;
                 {
                     const py::gil_scoped_release waiting;
                     operation = turn.enter();
                 }
                 return taken(operation);
             })
        .def("leave", &Turn::leave)
        .def("mine", &Turn::mine)
        .def("hand_over",
             [](Turn& turn, py::object operation) { turn.hand_over(handed(std::move(operation))); })
        .def("take_over", [](Turn& turn) { return taken(turn.take_over()); })
        .def("begin",
             [](Turn& turn, std::string call) {
                 return turn.begin(std::make_shared<const std::string>(std::move(call)));
             })
        .def("end", &Turn::end)
        .def("note", &Turn::note)
        .def("count_engine_operation", [](Turn& turn) { ++turn.engine_operations; })
        .def_property_readonly("history", [](const Turn& turn) { return turn.history.load(); })
        .def("add_pending", [](Turn& turn, int change) { turn.pending += change; })
        .def_property_readonly("pending", [](const Turn& turn) { return turn.pending.load(); })
        .def_property_readonly("sequence", [](const Turn& turn) { return turn.sequence.load(); })
        .def_property_readonly("running", [](const Turn& turn) { return turn.running.load(); })
        .def_property_readonly("latest", &Turn::latest)
        .def_property_readonly("engine_operations",
                               [](const Turn& turn) { return turn.engine_operations.load(); })
        .def_property(
            "closed", [](const Turn& turn) { return turn.closed.load(); },
            [](Turn& turn, bool closed) { turn.closed.store(closed); });

    py::class_<Completions, std::shared_ptr<Completions>>(module, "Completions").def(py::init<>());

    py::class_<FinishedWork, c10d::Work, c10::intrusive_ptr<FinishedWork>>(module, "FinishedWork")
        .def(py::init([](Tensors tensors) {
            return c10::make_intrusive<FinishedWork>(std::move(tensors), 0);
        }))
        .def("exception", [](const FinishedWork&) { return py::none(); });

    // torch's own keeps Python's lock until the store has answered.
    module.def(
        "list_keys", [](const c10::intrusive_ptr<c10d::Store>& store) { return store->listKeys(); },
        no_python);

    py::class_<PendingWork, c10d::Work, c10::intrusive_ptr<PendingWork>>(module, "PendingWork")
        .def(py::init([](std::string call, py::object may_block, py::object give_up,
                         std::vector<c10::Device> devices, py::object timed_out,
                         std::shared_ptr<Completions> completions) {
                 return c10::make_intrusive<PendingWork>(
                     std::move(call), PythonObject(std::move(may_block)),
                     PythonObject(std::move(timed_out)),
                     give_up.is_none() ? PythonObject() : PythonObject(std::move(give_up)),
                     std::move(completions), std::move(devices));
             }),
             py::arg("call"), py::arg("may_block"), py::arg("give_up") = py::none(),
             py::arg("devices") = std::vector<c10::Device>(), py::kw_only(), py::arg("timed_out"),
             py::arg("completions"))
        .def_property_readonly("call", &PendingWork::call)
        .def("succeed", &PendingWork::succeed)
        .def("fail", &PendingWork::fail)
        .def("exception", &PendingWork::error)
        .def("__repr__", &PendingWork::text);

    py::class_<AffluxBackend, c10d::Backend, c10::intrusive_ptr<AffluxBackend>>(module,
                                                                                "AffluxBackend")
        .def(py::init([](int rank, int size, py::object core,
                         const c10::intrusive_ptr<c10d::Backend>& gloo, std::shared_ptr<Turn> turn,
                         py::object calls, py::object sums, bool only_gloo, py::object splitter,
                         py::object shrinker, std::shared_ptr<Completions> completions,
                         py::object timed_out) {
            return c10::make_intrusive<AffluxBackend>(
                rank, size, std::move(core), gloo, std::move(turn), std::move(calls),
                std::move(sums), only_gloo, std::move(splitter), std::move(shrinker),
                std::move(completions), std::move(timed_out));
        }))
        .def_property_readonly("core", &AffluxBackend::core)
        .def("gloo_counts", &AffluxBackend::gloo_counts)
        .def("let_go", &AffluxBackend::let_go, no_python)
        // torch's classes show it to C++ alone.
        .def("get_error", &AffluxBackend::getError, no_python)
        // torch calls it at ranks that get no part of a group that is split.
        .def("perform_nocolor_split", [](const AffluxBackend&, const py::object&) {})
        .def_property(
            "observed", [](const AffluxBackend& backend) { return backend.observed.load(); },
            [](AffluxBackend& backend, bool observed) { backend.observed.store(observed); });

#ifdef C10D_BACKEND_HAS_RECONFIGURE
    py::class_<ReconfigurableBackend, c10d::Backend, c10::intrusive_ptr<ReconfigurableBackend>>(
        module, "ReconfigurableBackend")
        .def(py::init(
            [](int rank, int size, py::object changer, std::shared_ptr<Completions> completions) {
                return c10::make_intrusive<ReconfigurableBackend>(rank, size, std::move(changer),
                                                                  std::move(completions));
            }))
        .def_property_readonly("core", &ReconfigurableBackend::core)
        .def("get_error", &ReconfigurableBackend::getError, no_python)
        .def("perform_nocolor_split", [](const ReconfigurableBackend&, const py::object&) {});
#endif
}

}  // namespace afflux
