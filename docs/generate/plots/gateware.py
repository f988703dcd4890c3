"""Plots of the gateware, cycle by cycle."""

from typing import Any

from afflux.commands.bench import plot_style as style
from afflux.commands.bench.plot_style import BLUE, GREY, ORANGE
from afflux_hdl.contract import wire
from docs.generate.plots.tables import Documents, fraction, number

__all__ = ["PLOTS"]

_PAGE = "benchmarks.md"
_BITS, _CLOCK_GHZ = "512", 0.25
_PORT_GBPS = 100
_OVERHEAD_BYTES = 24
"""Of a frame at a port: preamble, check sequence, gap."""


def _frame_size(documents: Documents) -> Any:
    """Draw payload by the size of frames, at 512 bits, beside what bus and port let through."""
    figure, axes = style.page(
        "Payload that the engine takes, by size of frames",
        "Simulated, 512 bits at 250 MHz, 2 to 64 workers, unicast results.",
        3.4,
    )
    bus = int(_BITS) * _CLOCK_GHZ
    sizes = [wire.frame_bytes(blocks) for blocks in range(wire.LANES_MAX + 1)]
    ends = []
    for rate, overhead, text in (
        (bus, 0, f"limit of the bus,\n{bus:g} Gbit/s"),
        (_PORT_GBPS, _OVERHEAD_BYTES, f"limit of a port,\n{_PORT_GBPS} Gbit/s"),
    ):
        share = [rate * (size - wire.PAYLOAD_OFFSET) / (size + overhead) for size in sizes]
        axes.plot(sizes, share, ":", color=GREY)
        ends.append((sizes[-1], share[-1], text, GREY))
    for row in documents.table(_PAGE, "figures: line_rate"):
        if (row["bits"], row["results"]) == (_BITS, "unicast") and row["blocks"] != "mix":
            low, *_, high = map(number, row["payload in (Gbit/s)"].split(" – ") * 2)
            size = wire.frame_bytes(int(row["blocks"]))
            axes.plot([size, size], [low, high], "o-", color=BLUE)
    for row in documents.table(_PAGE, "figures: port"):
        if row["bits"] == _BITS:
            size = wire.frame_bytes(int(row["blocks"]))
            axes.plot([size], [_PORT_GBPS * fraction(row["payload in"])], "x", color=ORANGE)
    size, middle = wire.frame_bytes(5), {"textcoords": "offset points", "va": "center"}
    axes.annotate("a beat in every cycle", (size, 114), (12, -3), color=BLUE, **middle)
    axes.annotate("frames as from such a port", (size, 89), (12, -7), color=ORANGE, **middle)
    axes.set(xlim=(0, 5600), ylim=(0, 138), xlabel="bytes of a frame", ylabel="payload, Gbit/s")
    axes.set_yticks(range(0, 121, 20))
    axes.set_xticks(range(0, 4001, 1000), [f"{each:,}" for each in range(0, 4001, 1000)])
    style.end_labels(axes, ends)
    return figure


_OVERLAPS = {"random": "blocks at random", "full": "the same blocks", "none": "none in common"}
_STYLES = {"random": "o-", "full": "s--", "none": "^:"}


def _zero_skip(documents: Documents) -> Any:
    """Draw cycles relative to the dense tensor against density, at 512 bits."""
    figure, axes = style.page(
        "Cycles of an all-reduce whose blocks are mostly zero",
        "Simulated, 512 bits, 8 workers; a dense tensor takes 1.",
        3.7,
    )
    rows = [row for row in documents.table(_PAGE, "figures: zero_skip") if row["workers"] == "8"]
    ends = []
    for way, colour, nth in (("unicast", ORANGE, ""), ("multicast", BLUE, " 2")):
        for overlap, text in _OVERLAPS.items():
            of_way = [row for row in rows if row["overlap"] in (overlap, "–")]
            densities = [float(row["density"]) for row in of_way]
            cycles = [float(row["of dense" + nth]) for row in of_way]
            ideal = [
                share / float(row["of ideal" + nth])
                for share, row in zip(cycles, of_way, strict=True)
            ]
            axes.plot(densities, cycles, _STYLES[overlap], color=colour)
            axes.plot(densities, ideal, "_", color="black", markersize=9, markeredgewidth=1)
            ends.append((densities[-1], cycles[-1], f"{way}, {text}", colour))
    style.key(figure, [("–", "the blocks alone, without headers", "black")])
    style.percent_axis(axes.xaxis, (0.01, 0.04, 0.1, 0.4, 1))
    axes.set(xlim=(0.00032, 1.2), yscale="log", ylim=(0.0065, 1.4))
    style.percent_axis(axes.yaxis, ())
    axes.set_yticks((0.01, 0.1, 1), ("0.01", "0.1", "1"))
    axes.set_xlabel("blocks of a worker that are not zero")
    style.end_labels(axes, ends, side="left")
    return figure


PLOTS = {"frame_size": _frame_size, "zero_skip": _zero_skip}
