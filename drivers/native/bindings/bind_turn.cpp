// The turn of a group, and operations that begin in it, for adapters in Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>

#include "bindings/parts.hpp"
#include "c_api.h"
#include "turn.h"

namespace nb = nanobind;

namespace afflux::bindings {
namespace {

// Any thread may drop it.
Handed held(nb::object object) {
    return {new nb::object(std::move(object)), [](void* object) {
                // The interpreter may be gone: then so is the object.
                if (!nb::is_alive()) return;
                const nb::gil_scoped_acquire python;
                delete static_cast<nb::object*>(object);
            }};
}

nb::object taken(const Handed& handed) {
    return handed ? *static_cast<nb::object*>(handed.get()) : nb::none();
}

nb::object enter(Turn& turn) {
    Handed handed;
    {
        const nb::gil_scoped_release no_python;
        handed = turn.enter();
    }
    return taken(handed);
}

std::vector<void*> pointers(const std::vector<std::uintptr_t>& addresses) {
    std::vector<void*> found;
    for (const std::uintptr_t address : addresses)
        found.push_back(reinterpret_cast<void*>(address));
    return found;
}

// Wakes the thread that takes operations over. A signal handler may raise in any line of Python's,
// and the thread must learn of the operation all the same; then `wake` is told who gives it up.
void wake_surely(const nb::object& wake) {
    constexpr int kAttempts = 100;
    std::optional<nb::python_error> first;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        try {
            wake(first ? nb::object(first->type().attr("__name__")) : nb::str(""));
            break;
        } catch (nb::python_error& raised) {
            if (!first) first.emplace(raised);
        }
    }
    if (first) throw nb::python_error(*first);
}

// Begins operations of a group's reducer in the calling thread.
class DirectCalls {
  public:
    DirectCalls(std::shared_ptr<Turn> turn, nb::object capsule, nb::object wake)
        : turn_(std::move(turn)), capsule_(std::move(capsule)), wake_(std::move(wake)) {
        const void* const calls = PyCapsule_GetPointer(capsule_.ptr(), AFFLUX_CALLS);
        if (calls == nullptr) nb::raise_python_error();
        calls_ = static_cast<const afflux_calls*>(calls);
    }

    // No line of Python's runs from the turn's beginning until it is given back or handed over.
    std::optional<bool> run(const std::string& text, const nb::object& prepared,
                            const std::vector<std::uintptr_t>& inputs,
                            const std::vector<std::uintptr_t>& outputs, std::int64_t nanoseconds,
                            const nb::tuple& about) {
        const auto call = std::make_shared<const std::string>(text);
        const std::vector<void*> from = pointers(inputs), to = pointers(outputs);
        const auto field = [&](const char* name) { return prepared.attr(name); };
        afflux_request request{};
        request.collective = nb::cast<std::int32_t>(field("collective"));
        request.dtype = nb::cast<std::int32_t>(field("dtype"));
        request.reduction = nb::cast<std::int32_t>(field("reduction"));
        request.root = nb::cast<std::int32_t>(field("root"));
        request.count = nb::cast<std::uint64_t>(field("count"));
        request.fingerprint = nb::cast<std::uint64_t>(field("fingerprint"));
        request.inputs = from.data();
        request.input_count = static_cast<std::uint32_t>(from.size());
        request.outputs = to.data();
        request.output_count = static_cast<std::uint32_t>(to.size());
        if (!turn_->try_enter_open()) return std::nullopt;
        {
            const HeldTurn turn(*turn_);
            turn_->begin(call);
            request.history = turn_->history.load();
            afflux_outcome outcome{};
            std::int32_t status;
            {
                const nb::gil_scoped_release no_python;
                status = calls_->run(calls_->group, &request, nanoseconds, &outcome);
            }
            if (status == AFFLUX_OVER) {
                ++turn_->engine_operations;
                return true;
            }
            const nb::object why = nb::str(status == AFFLUX_NOT_YET ? "" : outcome.text);
            turn_->hand_over(held(about + nb::make_tuple(outcome.operation, status, why)));
        }
        wake_surely(wake_);
        return false;
    }

  private:
    const std::shared_ptr<Turn> turn_;
    const nb::object capsule_, wake_;
    const afflux_calls* calls_;
};

}  // namespace

void bind_turn(nb::module_& module) {
    nb::class_<Turn>(module, "Turn",
                     "Whose turn it is in a group: one thread at a time uses its reducer and its "
                     "Gloo collectives.")
        .def(nb::init<>())
        .def("try_enter", &Turn::try_enter,
             "Take the turn if nobody has it and nobody waits in the queue.")
        .def("enter", &enter,
             "Wait for the turn, free or handed over, and take it; return what was handed over.")
        .def("leave", &Turn::leave, "Give the turn back.")
        .def(
            "hand_over", [](Turn& turn, nb::object handed) { turn.hand_over(held(handed)); },
            nb::arg("operation"),
            "Keep the turn for the thread that calls `take_over`, or that waits in `enter`.")
        .def(
            "take_over", [](Turn& turn) { return taken(turn.take_over()); },
            "Take the turn if it has been handed over; return what with, or None.")
        .def("mine", &Turn::mine, "Return whether the calling thread has the turn.")
        .def(
            "begin",
            [](Turn& turn, std::string call) {
                return turn.begin(std::make_shared<const std::string>(std::move(call)));
            },
            nb::arg("call"), "Count an operation, in the thread that has the turn.")
        .def("end", &Turn::end, "Note that the latest operation is over.")
        .def("note", &Turn::note, nb::arg("number"),
             "Mix a call to Gloo into the history, in the thread that has the turn.")
        .def(
            "count_engine_operation", [](Turn& turn) { ++turn.engine_operations; },
            "Count an operation of the reducer.")
        .def(
            "add_pending", [](Turn& turn, int change) { turn.pending += change; },
            nb::arg("change"), "Change `pending`.")
        .def_prop_ro(
            "pending", [](const Turn& turn) { return turn.pending.load(); },
            "Operations that wait in the queue; a synchronous call stays behind them.")
        .def_prop_ro(
            "sequence", [](const Turn& turn) { return turn.sequence.load(); },
            "Number of the latest operation, from 1; 0 before the first.")
        .def_prop_ro("latest", &Turn::latest, "That operation in words.")
        .def_prop_ro(
            "running", [](const Turn& turn) { return turn.running.load(); },
            "Whether it is in progress.")
        .def_prop_ro(
            "history", [](const Turn& turn) { return turn.history.load(); },
            "64 bits that stand for all calls to Gloo so far, and their order.")
        .def_prop_ro(
            "engine_operations", [](const Turn& turn) { return turn.engine_operations.load(); },
            "Operations that the reducer has carried out.")
        .def_prop_rw(
            "closed", [](const Turn& turn) { return turn.closed.load(); },
            [](Turn& turn, bool closed) { turn.closed.store(closed); },
            "Whether the group takes no more operations.");

    nb::class_<DirectCalls>(module, "DirectCalls",
                            "Begins operations in the calling thread, through the calls of "
                            "c_api.h; no signal handler of Python's runs while it has the turn.")
        .def(nb::init<std::shared_ptr<Turn>, nb::object, nb::object>(), nb::arg("turn"),
             nb::arg("calls"), nb::arg("wake"))
        .def("run", &DirectCalls::run, nb::arg("text"), nb::arg("prepared"), nb::arg("inputs"),
             nb::arg("outputs"), nb::arg("nanoseconds"), nb::arg("about"),
             "Carry an operation out, for up to so long, if it may begin at once. Return True if "
             "it is over. Return False if the turn has been handed over, with `about` and the "
             "operation's number, status and text, and `wake` has been called. Return None if "
             "others are before it: nothing has been done.");
}

}  // namespace afflux::bindings
