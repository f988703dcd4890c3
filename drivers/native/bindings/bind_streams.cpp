// The group of ranks that have streams to each other, for Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <utility>

#include "bindings/group_handle.hpp"
#include "bindings/parts.hpp"
#include "streams/mesh.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace afflux::bindings {
namespace {

using streams::Mesh;

class StreamsGroup final : public GroupHandle {
  public:
    StreamsGroup(int rank, const std::vector<std::vector<int>>& sockets, std::vector<int> names,
                 int threads)
        : GroupHandle(std::make_shared<Mesh>(rank, sockets, std::move(names), threads)) {}

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

}  // namespace

void bind_streams(nb::module_& module) {
    nb::class_<StreamsGroup, GroupHandle>(
        module, "StreamsGroup",
        "One rank's end of a group whose ranks have streams to each other.\n\n"
        "Takes over the sockets, by lane and then by rank, -1 for the own one: connected, and\n"
        "without blocking. Nobody else may close them. So many threads move the lanes.")
        .def(nb::init<int, const std::vector<std::vector<int>>&, std::vector<int>, int>(), "rank"_a,
             "sockets"_a, "names"_a, "threads"_a)
        .def("statistics", &StreamsGroup::statistics);
}

}  // namespace afflux::bindings
