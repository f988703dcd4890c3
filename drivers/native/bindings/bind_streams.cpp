// The group of ranks that have streams to each other, for Python.
#include <nanobind/nanobind.h>
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
};

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
    nb::class_<StreamsGroup, GroupHandle>(
        module, "StreamsGroup",
        "One rank's end of a group whose ranks have streams to each other.\n\n"
        "Takes over the sockets, by lane and then by rank, -1 for the own one: connected, and\n"
        "without blocking. Nobody else may close them. After those of the ranks there may be one\n"
        "to an aggregator. So many threads move the lanes. All-reduces for\n"
        "which each rank sends at most `one_hop` bytes more by it take one hop. `carriers`: of "
        "the\n"
        "lanes, if not the sockets themselves carry them.")
        .def(nb::init<int, const std::vector<std::vector<int>>&, std::vector<int>, int, std::size_t,
                      UcxLanes*>(),
             "rank"_a, "sockets"_a, "names"_a, "threads"_a, "one_hop"_a = Mesh::kOneHop,
             "carriers"_a.none() = nb::none())
        .def("statistics", &StreamsGroup::statistics);
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
