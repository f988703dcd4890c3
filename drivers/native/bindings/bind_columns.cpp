// A worker's packets without a network, for the benchmark. The loop over packets is here because a
// call from Python takes longer than a packet does.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "arithmetic/types.hpp"
#include "bindings/arrays.hpp"
#include "bindings/parts.hpp"
#include "packet/packet_buffer.hpp"
#include "worker/columns.hpp"
#include "worker/grid.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace afflux::bindings {
namespace {

// One slot's packet, of which the words are what the ranks have agreed on for the next round.
struct Window {
    packet::PacketBuffer packet;
    wire::Present present = 0;

    bool ended() {
        const std::uint32_t* words = packet.words();
        return std::all_of(words, words + wire::kLanesMax,
                           [](std::uint32_t word) { return word == wire::kAbsent; });
    }
};

void walk_columns(const Input& elements, const Output& result, int dtype, int reduction, int ranks,
                  std::size_t job_slots, bool back, std::size_t lanes) {
    const worker::Tensor tensor{
        .dtype = dtype_of(dtype),
        .op = op_of(reduction),
        .ranks = ranks,
        .count = count_of(elements, dtype_of(dtype)),
        .elements = elements.data(),
        .result = result.data(),
    };
    expect_bytes(result, elements.nbytes(), "result");
    if (job_slots == 0) throw nb::value_error("a job has at least one slot");
    if (lanes < 1 || lanes > wire::kLanesMax) throw nb::value_error("packets have 1 to 16 lanes");
    const nb::gil_scoped_release release;
    const worker::Grid grid(tensor.blocks(), lanes, job_slots);
    worker::Columns columns(tensor, grid);
    std::vector<Window> windows(grid.slots);
    for (std::size_t slot = 0; slot < grid.slots; ++slot) {
        columns.opening_words(slot, windows[slot].packet.words());
    }
    for (bool more = true; more;) {
        more = false;
        for (std::size_t slot = 0; slot < grid.slots; ++slot) {
            Window& window = windows[slot];
            window.present = 0;
            if (window.ended()) continue;
            std::uint32_t* words = window.packet.words();
            window.present = columns.contribute(slot, words, words, window.packet.blocks());
            more = true;
        }
        // The packets of all slots are under way at the same time.
        for (std::size_t slot = 0; back && slot < grid.slots; ++slot) {
            Window& window = windows[slot];
            if (window.present) columns.take(slot, window.present, window.packet.blocks());
        }
    }
}

}  // namespace

void bind_columns(nb::module_& module) {
    module.def("walk_columns", &walk_columns, "elements"_a, "result"_a, "dtype"_a, "reduction"_a,
               "ranks"_a, "slots"_a, "back"_a, "lanes"_a = wire::kLanesMax,
               "Put a tensor into packets, window by window, as a worker whose peers have nothing\n"
               "to add; with `back`, also take each packet as its own result. For benchmarks.");
}

}  // namespace afflux::bindings
