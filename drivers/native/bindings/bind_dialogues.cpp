// The exchanges of a worker and its aggregator: a join, and one all-reduce.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/parts.hpp"
#include "sums/block_scan.hpp"
#include "worker/fingerprint.hpp"
#include "worker/join.hpp"
#include "worker/operation.hpp"
#include "worker/session.hpp"
#include "worker/side_by_side.hpp"

namespace nb = nanobind;

namespace afflux::bindings {
namespace {

using packet::Octets;
using worker::Session;

using Elements = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Result = nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu>;

nb::bytes to_bytes(Octets octets) {
    return nb::bytes(octets.data, octets.bytes);
}

// Keeps what a dialogue sends.
class Collected final : public worker::PacketSink {
  public:
    void send(Octets datagram) override { datagrams.push_back(to_bytes(datagram)); }

    std::vector<nb::bytes> datagrams;
};

// Memory of a host's other ranks: their contributions, and the place of their results.
struct Host {
    std::vector<Elements> others;
    std::vector<Elements> exponents;
    std::optional<std::pair<Result, Result>> mirror;
};

// An operation that keeps the arrays that it works on.
class BoundOperation final : public worker::Operation {
  public:
    BoundOperation(Session& session, Elements elements, Result result, int dtype, int op,
                   std::uint32_t fingerprint, worker::Share share, std::size_t slots, Host host)
        : Operation(session, to_tensor(session.job.ranks, elements, result, dtype, op, host),
                    fingerprint, share, slots),
          elements_(std::move(elements)),
          result_(std::move(result)),
          host_(std::move(host)) {}

    static worker::Tensor to_tensor(unsigned ranks, const Elements& elements, const Result& result,
                                    int dtype, int op, const Host& host) {
        worker::Tensor tensor{
            .dtype = static_cast<arithmetic::Dtype>(dtype),
            .op = static_cast<arithmetic::Op>(op),
            .ranks = static_cast<int>(ranks),
            .count = elements.shape(0),
            .elements = elements.data(),
            .result = result.data(),
        };
        const std::size_t bytes = arithmetic::size_of(tensor.dtype);
        if (elements.itemsize() != bytes || result.itemsize() != bytes ||
            result.shape(0) != tensor.count) {
            throw std::invalid_argument(
                "elements of " + std::to_string(bytes) +
                " bytes are needed, and a result as long; " + std::to_string(tensor.count) +
                " elements of " + std::to_string(elements.itemsize()) + " bytes and a result of " +
                std::to_string(result.shape(0)) + " of " + std::to_string(result.itemsize()) +
                " bytes were given");
        }
        const auto expect = [](bool right) {
            if (!right)
                throw std::invalid_argument("the ranks of a host need as many elements each");
        };
        expect(host.exponents.empty() || host.exponents.size() == host.others.size());
        for (const Elements& each : host.others) {
            expect(each.itemsize() == bytes && each.shape(0) == tensor.count);
            tensor.others.push_back({each.data()});
        }
        for (std::size_t i = 0; i < host.exponents.size(); ++i) {
            expect(host.exponents[i].nbytes() == tensor.blocks());
            tensor.others[i].exponents = static_cast<const std::uint8_t*>(host.exponents[i].data());
        }
        if (host.mirror) {
            const auto& [mirrored, marks] = *host.mirror;
            expect(mirrored.itemsize() == bytes && mirrored.shape(0) == tensor.count);
            expect(marks.nbytes() == tensor.blocks());
            tensor.mirror = {mirrored.data(), static_cast<std::uint8_t*>(marks.data())};
        }
        return tensor;
    }

  private:
    Elements elements_;
    Result result_;
    Host host_;
};

// The words of the operation below, which must be there before it.
struct AgainWords {
    AgainWords(const Session& session, const worker::Tensor& tensor,
               const std::vector<std::size_t>& blocks)
        : again(tensor, session.job.rank, session.job.others, blocks) {}

    worker::Again again;
};

// An operation that brings blocks which an aggregator could not sum.
class BoundAgain final : private AgainWords, public worker::Operation {
  public:
    BoundAgain(Session& session, Elements elements, Result result, int dtype, int op,
               const std::vector<std::size_t>& blocks, worker::Share share, std::size_t slots,
               Host host)
        : AgainWords(
              session,
              BoundOperation::to_tensor(session.job.ranks, elements, result, dtype, op, host),
              blocks),
          Operation(session, again.on_wire(), worker::fingerprint(session.number, again.text()),
                    share, slots, true),
          text_(std::to_string(session.number) + again.text()),
          elements_(std::move(elements)),
          result_(std::move(result)),
          host_(std::move(host)) {}

    std::size_t blocks() const { return again.size(); }
    const std::string& text() const { return text_; }
    void finish() const { again.finish(); }

  private:
    std::string text_;
    Elements elements_;
    Result result_;
    Host host_;
};

std::size_t blocks_of(const Result& elements) {
    return (elements.nbytes() + wire::kBlockBytes - 1) / wire::kBlockBytes;
}

// Of elements that are to be read by the leader of a host.
void scan_into(int dtype, const Result& elements, const Result& out, const Result& marks) {
    if (out.nbytes() != marks.nbytes() * wire::kBlockBytes || marks.nbytes() != blocks_of(elements))
        throw std::invalid_argument("marks are of each block, and the copy is of whole blocks");
    const nb::gil_scoped_release release;
    sums::scan_into(static_cast<arithmetic::Dtype>(dtype), elements.data(), elements.nbytes(),
                    out.data(), static_cast<std::uint8_t*>(marks.data()));
}

// Of elements that the leader of a host is to send as its own.
void reduce_host(int dtype, int op, int scale, const Result& elements, std::vector<Elements> others,
                 std::vector<Elements> exponents) {
    const Host host{std::move(others), std::move(exponents), std::nullopt};
    const auto tensor = BoundOperation::to_tensor(1, Elements(elements), elements, dtype, op, host);
    if (scale < 0 || scale > 30) throw std::invalid_argument("a scale is 0 to 30");
    const nb::gil_scoped_release release;
    worker::HostRanks(tensor).reduce(scale, elements.data());
}

void copy_marked(const Result& from, const Result& marks, const Result& out) {
    if (from.nbytes() != out.nbytes() || marks.nbytes() != blocks_of(out))
        throw std::invalid_argument("marks are of each block, of as many bytes here as there");
    const nb::gil_scoped_release release;
    worker::copy_marked(from.data(), static_cast<const std::uint8_t*>(marks.data()), out.nbytes(),
                        out.data());
}

}  // namespace

void bind_dialogues(nb::module_& module) {
    using worker::Dialogue;
    nb::class_<Dialogue>(module, "Dialogue",
                         "The exchange of a worker and its aggregator until it is over.")
        .def_prop_ro("next_timer", &Dialogue::next_timer,
                     "When `expire` is due, in seconds; infinite if nothing is outstanding.")
        .def_prop_ro("done", &Dialogue::done, "Whether it is over.")
        .def(
            "open",
            [](Dialogue& dialogue, double now) {
                Collected sent;
                dialogue.open(now, sent);
                return std::move(sent.datagrams);
            },
            nb::arg("now"), "Return the first packets.")
        .def(
            "receive_bytes",
            [](Dialogue& dialogue, nb::bytes datagram, double now) -> std::optional<nb::bytes> {
                packet::PacketBuffer packet;
                if (datagram.size() > packet.bytes()) {
                    throw std::invalid_argument("a datagram must have at most " +
                                                std::to_string(packet.bytes()) + " bytes, not " +
                                                std::to_string(datagram.size()));
                }
                std::memcpy(packet.datagram(), datagram.data(), datagram.size());
                Collected sent;
                dialogue.receive(packet, datagram.size(), now, sent);
                if (sent.datagrams.empty()) return std::nullopt;
                return sent.datagrams.front();
            },
            nb::arg("datagram"), nb::arg("now"),
            "Take a datagram that came from the aggregator's address; return an answer or None.")
        .def(
            "expire",
            [](Dialogue& dialogue, double now) {
                Collected sent;
                dialogue.expire(now, sent);
                return std::move(sent.datagrams);
            },
            nb::arg("now"), "Return what is to be sent as timers have run out.");

    nb::class_<worker::Join, Dialogue>(module, "Join",
                                       "How a worker makes its address known to the aggregator.")
        .def(nb::init<Session&>(), nb::keep_alive<1, 2>(), nb::arg("session"))
        .def_prop_ro("sends", &worker::Join::sends, "How often the JOIN was sent.");

    nb::class_<worker::Operation, Dialogue>(module, "Part",
                                            "One aggregator's part of an operation.")
        .def_prop_ro("missing_workers", &worker::Operation::missing_workers,
                     "Bitmap of the workers whose contributions are missing.")
        .def_prop_ro("vanishing", &worker::Operation::vanishing,
                     "Bytes of the longest packet that never arrives, or 0.")
        .def("not_summed", &worker::Operation::not_summed,
             "Return the numbers of the blocks that the aggregator could not sum; once it is over.")
        .def("waits_above", &worker::Operation::waits_above,
             "Return whether the aggregator waits for its parent.");

    nb::class_<BoundOperation, worker::Operation>(module, "Operation",
                                                  "One all-reduce of one tensor.")
        .def(
            "__init__",
            [](BoundOperation* self, Session& session, Elements elements, Result result, int dtype,
               int op, std::uint32_t fingerprint, std::pair<std::size_t, std::size_t> share,
               std::size_t slots, std::vector<Elements> others, std::vector<Elements> exponents,
               std::optional<std::pair<Result, Result>> mirror) {
                new (self)
                    BoundOperation(session, std::move(elements), std::move(result), dtype, op,
                                   fingerprint, {share.first, share.second}, slots,
                                   {std::move(others), std::move(exponents), std::move(mirror)});
            },
            nb::keep_alive<1, 2>(), nb::arg("session"), nb::arg("elements"), nb::arg("result"),
            nb::arg("dtype"), nb::arg("op"), nb::arg("fingerprint"), nb::arg("share"),
            nb::arg("slots"), nb::arg("others") = std::vector<Elements>{},
            nb::arg("exponents") = std::vector<Elements>{}, nb::arg("mirror") = nb::none());

    nb::class_<BoundAgain, worker::Operation>(
        module, "Again", "An operation that brings blocks which an aggregator could not sum.")
        .def(
            "__init__",
            [](BoundAgain* self, Session& session, Elements elements, Result result, int dtype,
               int op, const std::vector<std::size_t>& blocks,
               std::pair<std::size_t, std::size_t> share, std::size_t slots,
               std::vector<Elements> others, std::vector<Elements> exponents,
               std::optional<std::pair<Result, Result>> mirror) {
                new (self) BoundAgain(session, std::move(elements), std::move(result), dtype, op,
                                      blocks, {share.first, share.second}, slots,
                                      {std::move(others), std::move(exponents), std::move(mirror)});
            },
            nb::keep_alive<1, 2>(), nb::arg("session"), nb::arg("elements"), nb::arg("result"),
            nb::arg("dtype"), nb::arg("op"), nb::arg("blocks"), nb::arg("share"), nb::arg("slots"),
            nb::arg("others") = std::vector<Elements>{},
            nb::arg("exponents") = std::vector<Elements>{}, nb::arg("mirror") = nb::none())
        .def_prop_ro("blocks", &BoundAgain::blocks, "How many of the blocks it brings.")
        .def_prop_ro("text", &BoundAgain::text, "The fields that the ranks compare.")
        .def("finish", &BoundAgain::finish, "Put the sums into the result, once it is over.");
    module.def("scan_into", &scan_into, nb::arg("dtype"), nb::arg("elements"), nb::arg("out"),
               nb::arg("exponents"),
               "Write a byte for each block, its exponent or 0, and copy those that have one.");
    module.def("reduce_host", &reduce_host, nb::arg("dtype"), nb::arg("op"), nb::arg("scale"),
               nb::arg("elements"), nb::arg("others"), nb::arg("exponents"),
               "Make elements those of all ranks of a host; sums are scaled and rounded.");
    module.def("copy_marked", &copy_marked, nb::arg("source"), nb::arg("marks"), nb::arg("target"),
               "Copy the blocks of elements whose marks are not 0.");
}

}  // namespace afflux::bindings
