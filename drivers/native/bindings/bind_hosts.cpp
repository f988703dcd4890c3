// The group of hosts with several ranks each, for Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <utility>

#include "bindings/group_handle.hpp"
#include "bindings/parts.hpp"
#include "bindings/ucx_lanes.hpp"
#include "hosts/group.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace afflux::bindings {
namespace {

class HostsGroup final : public GroupHandle {
  public:
    HostsGroup(std::vector<std::vector<int>> hosts, int host, int index, GroupHandle* memory,
               const std::vector<std::vector<int>>& sockets, int threads, bool rounds,
               std::size_t one_hop, UcxLanes* carriers)
        : GroupHandle(made({std::move(hosts), host, index}, memory, sockets, threads, rounds,
                           one_hop, carriers)) {}

    nb::dict statistics() const {
        const auto group = std::static_pointer_cast<hosts::Group>(open());
        nb::dict all;
        all["operations"] = group->operations();
        all["bytes"] = group->bytes();
        const streams::Statistics rail =
            group->rail() ? group->rail()->statistics() : streams::Statistics{};
        all["bytes_sent"] = rail.bytes_sent;
        all["blocks_present"] = rail.blocks_present;
        all["blocks_total"] = rail.blocks_total;
        all["waits"] = rail.waits;
        all["sleeps"] = rail.sleeps;
        return all;
    }

  private:
    static std::shared_ptr<hosts::Group> made(hosts::Places places, GroupHandle* memory,
                                              const std::vector<std::vector<int>>& sockets,
                                              int threads, bool rounds, std::size_t one_hop,
                                              UcxLanes* carriers) {
        std::unique_ptr<streams::Mesh> rail;
        if (!sockets.empty()) {
            std::vector<int> names;
            for (const auto& ranks : places.hosts)
                names.push_back(ranks[static_cast<std::size_t>(places.index)]);
            rail = std::make_unique<streams::Mesh>(places.host, sockets, std::move(names), threads,
                                                   one_hop, carriers_of(carriers));
        }
        auto local = memory ? std::dynamic_pointer_cast<shared::Group>(memory->group()) : nullptr;
        return std::make_shared<hosts::Group>(std::move(places), std::move(local), std::move(rail),
                                              rounds);
    }
};

}  // namespace

void bind_hosts(nb::module_& module) {
    nb::class_<HostsGroup, GroupHandle>(
        module, "HostsGroup",
        "One rank's end of a group of which hosts have several ranks: all-reduces and barriers.\n\n"
        "`hosts` are the ranks of each host, of which this one is number `index` of `host`;\n"
        "`memory` is the SharedGroup of its host's ranks, None if it is alone there. The first\n"
        "ranks of each host, as many as the smallest host has, have streams to those of the same\n"
        "index: `sockets` by lane and host, as for StreamsGroup; empty at other ranks. `rounds`:\n"
        "each host rounds its sums; `one_hop` and `carriers`: as for StreamsGroup.")
        .def(nb::init<std::vector<std::vector<int>>, int, int, GroupHandle*,
                      const std::vector<std::vector<int>>&, int, bool, std::size_t, UcxLanes*>(),
             "hosts"_a, "host"_a, "index"_a, "memory"_a.none(), "sockets"_a, "threads"_a,
             "rounds"_a, "one_hop"_a = streams::Mesh::kOneHop, "carriers"_a.none() = nb::none())
        .def("statistics", &HostsGroup::statistics);
}

}  // namespace afflux::bindings
