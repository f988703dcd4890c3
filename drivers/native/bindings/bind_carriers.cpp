// The carriers of streams, for Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/parts.hpp"
#include "bindings/ucx_lanes.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace afflux::bindings {

UcxLanes::UcxLanes(const std::string& library, const std::vector<std::vector<int>>& sockets)
    : context_(std::make_shared<const carriers::UcxContext>(carriers::UcxLibrary::open(library))) {
    for (const auto& lane : sockets)
        lanes_.push_back(std::make_unique<carriers::UcxLane>(context_, lane));
}

std::vector<nb::bytes> UcxLanes::addresses() const {
    std::vector<nb::bytes> all;
    for (const auto& lane : lanes_) {
        const std::vector<std::byte> address = lane->address();
        all.emplace_back(address.data(), address.size());
    }
    return all;
}

void UcxLanes::connect(std::size_t member, const std::vector<nb::bytes>& addresses) {
    if (addresses.size() != lanes_.size())
        throw std::invalid_argument("not as many addresses as lanes");
    for (std::size_t l = 0; l < lanes_.size(); ++l) {
        if (member >= lanes_[l]->members() || !lanes_[l]->stream(member))
            throw std::invalid_argument("no such member");
        const auto* const first = reinterpret_cast<const std::byte*>(addresses[l].c_str());
        lanes_[l]->connect(member, std::span(first, addresses[l].size()));
    }
}

std::string UcxLanes::version() const {
    return context_->library().version();
}

streams::Mesh::Carriers UcxLanes::take() {
    if (lanes_.empty()) throw std::logic_error("these lanes have been handed over");
    streams::Mesh::Carriers all;
    for (auto& each : lanes_) all.push_back(std::move(each));
    lanes_.clear();
    return all;
}

void bind_carriers(nb::module_& module) {
    nb::class_<UcxLanes>(
        module, "UcxLanes",
        "Lanes that UCX carries, for StreamsGroup and HostsGroup, which take them over.\n\n"
        "`library` is the name or path of libucp; `sockets` are those of the lanes, by lane and\n"
        "rank, -1 for the own one. They stay with whom they belong to. RuntimeError if UCX cannot\n"
        "be used.")
        .def(nb::init<const std::string&, const std::vector<std::vector<int>>&>(), "library"_a,
             "sockets"_a)
        .def("addresses", &UcxLanes::addresses, "The own address in each lane, for the others.")
        .def("connect", &UcxLanes::connect, "member"_a, "addresses"_a,
             "Take the addresses of a member of the lanes. RuntimeError if no transport leads\n"
             "there.")
        .def_prop_ro("version", &UcxLanes::version, "UCX's version.");
    module.def(
        "ucx_library",
        [](const std::string& name) {
            const auto library = carriers::UcxLibrary::open(name);
            return std::pair(library->path(), library->version());
        },
        "name"_a,
        "Open libucp by its name or path; return its path and version. RuntimeError if that\n"
        "fails. It stays open.");
}

}  // namespace afflux::bindings
