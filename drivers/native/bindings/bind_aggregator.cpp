// The engine on sockets for Python, which opens them and keeps the control channel.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <vector>

#include "aggregator/server.hpp"
#include "bindings/locked_engine.hpp"
#include "bindings/parts.hpp"
#include "datagrams/udp_socket.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace afflux::bindings {
namespace {

using aggregator::Server;

nb::dict to_dict(const datagrams::Traffic& traffic) {
    nb::dict dict;
    dict["calls"] = std::uint64_t{traffic.calls};
    dict["messages"] = std::uint64_t{traffic.messages};
    dict["datagrams"] = std::uint64_t{traffic.datagrams};
    dict["bytes"] = std::uint64_t{traffic.bytes};
    return dict;
}

nb::dict traffic(const Server& server) {
    const Server::Totals totals = server.totals();
    nb::dict dict;
    dict["received"] = to_dict(totals.received);
    dict["sent"] = to_dict(totals.sent);
    dict["handed_off"] = totals.handed_off;
    dict["waits"] = totals.waits;
    return dict;
}

}  // namespace

void bind_aggregator(nb::module_& module) {
    module.def("datagram_charge", &datagrams::charge, "datagram_bytes"_a,
               "Return the charge of a datagram on a receive buffer, if it comes alone.");
    module.def("usable_bytes", &datagrams::usable, "buffer_bytes"_a,
               "Return how much of a receive buffer can be counted on.");
    const auto no_python = nb::call_guard<nb::gil_scoped_release>();
    nb::class_<Server>(module, "SocketServer", "An engine on UDP sockets. Thread-safe.")
        .def(
            "__init__",
            [](Server* self, LockedEngine& engine, const std::vector<int>& sockets) {
                new (self) Server(engine.engine(), sockets);
            },
            "engine"_a, "sockets"_a, nb::keep_alive<1, 2>(),
            "Serve `engine` on bound sockets, given by file number: one for each of its shares.")
        .def("serve", &Server::serve, "share"_a, no_python,
             "Serve one share until `stop` is called, in the calling thread.")
        .def("stop", &Server::stop, no_python, "Make all calls of `serve` return soon.")
        .def("wake", &Server::wake, no_python, "Have the engine's commands carried out.")
        .def("open_parent_port", &Server::open_parent_port, "job"_a, "socket"_a, no_python,
             "Take a bound socket's datagrams as those of a job's parent.")
        .def("close_parent_port", &Server::close_parent_port, "job"_a, no_python,
             "Close the server's copy of that socket, if there is one.")
        .def("close", &Server::close, no_python,
             "Close the server's copies of the sockets, once nobody serves.")
        .def("traffic", &traffic, "Return system calls, messages, datagrams and bytes so far.");
}

}  // namespace afflux::bindings
