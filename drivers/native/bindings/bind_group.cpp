// The collectives of groups for Python, and how groups fail.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <span>

#include "bindings/c_api_capsule.hpp"
#include "bindings/group_handle.hpp"
#include "bindings/parts.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace afflux::bindings {
namespace {

using collectives::Request;

std::chrono::nanoseconds nanoseconds(double seconds) {
    // A year is as good as for ever, and added to the present it does not overflow.
    constexpr double kYear = 3.2e7;
    return std::chrono::nanoseconds(
        static_cast<std::int64_t>(std::clamp(seconds, 0.0, kYear) * 1e9));
}

// Numbers of no enumerator become ones that `Group::begin` refuses, rather than others by being
// cut.
template <typename Enum>
Enum number(int value) {
    return static_cast<Enum>(value < 0 || value > 255 ? 255 : value);
}

// One address, or a sequence of up to 64.
class Addresses {
  public:
    explicit Addresses(const nb::object& given) {
        if (nb::isinstance<nb::int_>(given)) {
            add(given);
        } else {
            for (const nb::handle each : given) add(each);
        }
    }
    std::span<void* const> all() const { return {addresses_.data(), count_}; }

  private:
    void add(nb::handle address) {
        if (count_ == addresses_.size()) throw nb::value_error("more tensors than ranks can be");
        addresses_[count_++] = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(address));
    }

    std::array<void*, arithmetic::kMaxRanks> addresses_;
    std::size_t count_ = 0;
};

}  // namespace

std::uint64_t GroupHandle::begin(const Output& array, int dtype, int reduction,
                                 std::uint64_t fingerprint) {
    void* const output = array.data();
    Request request;
    request.outputs = {&output, 1};
    request.dtype = number<collectives::Dtype>(dtype);
    request.op = number<collectives::Op>(reduction);
    request.count = array.size();
    request.fingerprint = fingerprint;
    if (array.itemsize() != collectives::size_of(request.dtype))
        throw nb::value_error("elements are not in the storage of their dtype");
    const auto group = open();
    std::uint64_t operation;
    {
        const nb::gil_scoped_release no_python;
        operation = group->begin(request);
    }
    array_ = nb::find(array);
    return operation;
}

bool GroupHandle::advance(double timeout_s, std::uint64_t operation) {
    const auto group = open();
    bool over;
    {
        const nb::gil_scoped_release no_python;
        over = group->advance(nanoseconds(timeout_s), operation);
    }
    if (over) array_ = nb::object();
    return over;
}

std::uint64_t GroupHandle::run(int what, const nb::object& inputs, const nb::object& outputs,
                               std::size_t count, int dtype, int reduction, int root,
                               std::uint64_t fingerprint, std::uint64_t history,
                               double timeout_s) const {
    const Addresses from(inputs), to(outputs);
    Request request;
    request.what = number<collectives::Collective>(what);
    request.inputs = from.all();
    request.outputs = to.all();
    request.count = count;
    request.dtype = number<collectives::Dtype>(dtype);
    request.op = number<collectives::Op>(reduction);
    request.root = root;
    request.fingerprint = fingerprint;
    request.history = history;
    const auto group = open();
    const nb::gil_scoped_release no_python;
    const std::uint64_t operation = group->begin(request);
    return group->advance(nanoseconds(timeout_s), operation) ? 0 : operation;
}

nb::object GroupHandle::calls() const {
    return capsule_of(handle_);
}

std::vector<int> GroupHandle::dead() const {
    const auto group = handle_->group();
    return group ? group->ended() : std::vector<int>{};
}

void GroupHandle::close() {
    {
        // A carrier may wait for peers to take what was sent.
        const nb::gil_scoped_release no_python;
        handle_->close();
    }
    array_ = nb::object();
}

void bind_group(nb::module_& module) {
    nb::exception<collectives::Failed> failed(module, "GroupFailed", PyExc_RuntimeError);
    nb::exception<collectives::Disagreement> disagreement(module, "GroupDisagreement",
                                                          failed.ptr());
    nb::class_<GroupHandle>(module, "Group", "One rank's end of a group: its collectives.")
        .def_prop_ro("rank", &GroupHandle::rank)
        .def_prop_ro("ranks", &GroupHandle::ranks)
        .def("begin", &GroupHandle::begin, "array"_a, "dtype"_a, "reduction"_a, "fingerprint"_a,
             "Begin an all-reduce of a contiguous array, in place. Does not wait. Return the\n"
             "operation's number, counted from 1.")
        .def("advance", &GroupHandle::advance, "timeout_s"_a, "operation"_a = 0,
             "Work and wait for up to so long; return True when the operation is over, also if it\n"
             "was over before. 0 is the operation in progress, whichever that is. Raises\n"
             "GroupDisagreement at all ranks if their calls differ, and GroupFailed if a rank\n"
             "has ended or failed the group.")
        .def("run", &GroupHandle::run, "collective"_a, "inputs"_a, "outputs"_a, "count"_a,
             "dtype"_a, "reduction"_a, "root"_a, "fingerprint"_a, "history"_a, "timeout_s"_a,
             "Begin a collective at one address or several and `advance`; return 0 if it is over,\n"
             "or else its number. Numbers and arguments are those of c_api.h. The caller\n"
             "keeps the memory until the operation is over.")
        .def("calls", &GroupHandle::calls,
             "Return a capsule of the calls in c_api.h, for another C or C++ library.")
        .def("in_progress", &GroupHandle::in_progress,
             "Return the number of the operation in progress, or 0.")
        .def("fingerprints", &GroupHandle::fingerprints,
             "Return each rank's fingerprint, after GroupDisagreement.")
        .def("histories", &GroupHandle::histories,
             "Return each rank's history, after GroupDisagreement.")
        .def("differing", &GroupHandle::differing,
             "Return the ranks whose call differs from this one's, after GroupDisagreement.")
        .def("missing", &GroupHandle::missing, "Return the ranks for which this one waits.")
        .def("waits_for_aggregator", &GroupHandle::waits_for_aggregator,
             "Return whether an aggregator alone has not done its part.")
        .def("obstacle", &GroupHandle::obstacle,
             "Return what keeps this rank's data from another one; empty if nothing is known.")
        .def("dead", &GroupHandle::dead,
             "Return the ranks whose process has ended, or that have left.")
        .def("fail", &GroupHandle::fail, "text"_a,
             "Make all ranks leave their operations with GroupFailed; the first text stays.")
        .def("failed", &GroupHandle::failed, "Return whether a rank has ended or failed the group.")
        .def("failure", &GroupHandle::failure, "Return why the group failed; empty if it did not.")
        .def("close", &GroupHandle::close,
             "Leave the group: operations of others that wait for this rank fail.");
}

}  // namespace afflux::bindings
