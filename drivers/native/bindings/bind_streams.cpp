// The group of ranks that have streams to each other, for Python.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/group_handle.hpp"
#include "bindings/parts.hpp"
#include "bindings/ucx_lanes.hpp"
#include "streams/aggregator.hpp"
#include "streams/mesh.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace afflux::bindings {
namespace {

using streams::Mesh;

class StreamsGroup final : public GroupHandle {
  public:
    StreamsGroup(int rank, const std::vector<std::vector<int>>& sockets, std::vector<int> names,
                 int threads, std::size_t one_hop, UcxLanes* carriers)
        : GroupHandle(std::make_shared<Mesh>(rank, sockets, std::move(names), threads, one_hop,
                                             carriers_of(carriers))) {}

    nb::dict statistics() const {
        const streams::Statistics s = static_cast<const Mesh&>(*open()).statistics();
        nb::dict all;
        all["operations"] = s.operations;
        for (std::size_t i = 0; i < collectives::kCollectives; ++i)
            all[kCollectiveNames[i]] = s.collectives[i];
        all["bytes"] = s.bytes;
        all["bytes_sent"] = s.bytes_sent;
        all["blocks_present"] = s.blocks_present;
        all["blocks_total"] = s.blocks_total;
        all["waits"] = s.waits;
        all["sleeps"] = s.sleeps;
        return all;
    }

    Mesh& mesh() const { return static_cast<Mesh&>(*open()); }
    nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>> result() const {
        const auto all = mesh().result();
        return {reinterpret_cast<std::uint8_t*>(all.data()), {all.size()}, nb::handle()};
    }
};

nb::bytes bytes_of(const std::vector<std::uint8_t>& octets) {
    return nb::bytes(octets.data(), octets.size());
}

// The same as of a worker's `Journal`.
void bind_results(nb::class_<StreamsGroup, GroupHandle>& group) {
    group
        .def(
            "keep_results", [](const StreamsGroup& of) { of.mesh().keep_results(); },
            "Let the ranks go on when their aggregator ends. Before the first operation.")
        .def(
            "leave_off",
            [](const StreamsGroup& of) {
                const nb::gil_scoped_release no_python;
                of.mesh().leave_off();
            },
            "Take nothing any more, and leave the streams open: another rank may still need what\n"
            "this one has sent.")
        .def_prop_ro(
            "over", [](const StreamsGroup& of) { return of.mesh().over(); },
            "How many calls have come to a good end.")
        .def_prop_ro(
            "running", [](const StreamsGroup& of) { return of.mesh().in_progress() != 0; },
            "Whether a call is running.")
        .def_prop_ro("result", &StreamsGroup::result, nb::rv_policy::reference,
                     "The bytes of the running call's result, if the aggregator owns of it, as\n"
                     "long as its tensor lives.")
        .def_prop_ro(
            "taken", [](const StreamsGroup& of) { return bytes_of(of.mesh().taken()); },
            "A byte for each of its blocks: 1 if it is a result.")
        .def_prop_ro(
            "taken_before", [](const StreamsGroup& of) { return of.mesh().taken_before(); },
            "How many blocks of the call that was over last were results of the aggregator.")
        .def_prop_ro(
            "kept", [](const StreamsGroup& of) { return of.mesh().kept().blocks; },
            "Blocks of that call which another rank may lack.")
        .def_prop_ro(
            "contents", [](const StreamsGroup& of) { return bytes_of(of.mesh().kept().contents); },
            "What is in them, one after the other.");
}

class StreamsAggregator {
  public:
    StreamsAggregator(const std::vector<std::vector<int>>& sockets, const std::vector<int>& sources,
                      const std::vector<int>& names)
        : aggregator_(sockets, sources, names) {}

    std::string run() {
        const nb::gil_scoped_release no_python;
        return aggregator_.run();
    }
    void stop() { aggregator_.stop(); }
    std::uint64_t operations() const { return aggregator_.operations(); }
    std::uint64_t bytes() const { return aggregator_.bytes(); }

  private:
    streams::Aggregator aggregator_;
};

}  // namespace

void bind_streams(nb::module_& module) {
    nb::class_<StreamsGroup, GroupHandle> group(
        module, "StreamsGroup",
        "One rank's end of a group whose ranks have streams to each other.\n\n"
        "Takes over the sockets, by lane and then by rank, -1 for the own one: connected, and\n"
        "without blocking. Nobody else may close them. After those of the ranks there may be one\n"
        "to an aggregator. So many threads move the lanes. All-reduces for\n"
        "which each rank sends at most `one_hop` bytes more by it take one hop. `carriers`: of "
        "the\n"
        "lanes, if not the sockets themselves carry them.");
    group
        .def(nb::init<int, const std::vector<std::vector<int>>&, std::vector<int>, int, std::size_t,
                      UcxLanes*>(),
             "rank"_a, "sockets"_a, "names"_a, "threads"_a, "one_hop"_a = Mesh::kOneHop,
             "carriers"_a.none() = nb::none())
        .def("statistics", &StreamsGroup::statistics);
    bind_results(group);
    nb::class_<StreamsAggregator>(
        module, "StreamsAggregator",
        "The aggregator of a group whose ranks have streams to it.\n\n"
        "Takes over the sockets, by lane and then by rank: connected, and without blocking.\n"
        "`sources` are how many ranks each one stands for, `names` their numbers in messages.")
        .def(nb::init<const std::vector<std::vector<int>>&, const std::vector<int>&,
                      const std::vector<int>&>(),
             "sockets"_a, "sources"_a, "names"_a)
        .def("run", &StreamsAggregator::run,
             "Serve until all ranks have ended, or `stop`; once. Return why the group has failed,\n"
             "empty if it has not.")
        .def("stop", &StreamsAggregator::stop, "Make `run` return soon. Any thread.")
        .def_prop_ro("operations", &StreamsAggregator::operations, "All-reduces that are over.")
        .def_prop_ro("bytes", &StreamsAggregator::bytes, "Of tensors that were summed.");
}

}  // namespace afflux::bindings
