"""The plot of `afflux bench --plot`: time and bus bandwidth over size. Needs matplotlib."""

from pathlib import Path

from afflux.commands.bench.catalogue import COLLECTIVES
from afflux.commands.bench.nccl_format import bus_bandwidth
from afflux.commands.bench.registry import Row

__all__ = ["draw"]

_LINES = {
    "afflux": ("Afflux", "o-"),
    "gloo": ("Gloo", "s-"),
    "mpi": ("MPI", "^-"),
    "floor": ("add one in place", "k:"),
    "read_floor": ("read", "k--"),
}


def draw(rows: list[Row], path: Path) -> None:
    """Write an SVG: all rows of the first type and reduction in them, in place."""
    import matplotlib as mpl

    mpl.use("svg")
    # The same figures give the same file.
    mpl.rcParams["svg.hashsalt"] = "afflux"
    from matplotlib import pyplot

    first = rows[0]
    collective = COLLECTIVES[first["what"]]
    factor = collective.bus_factor(first["ranks"])
    rows = [row for row in rows if (row["dtype"], row["op"]) == (first["dtype"], first["op"])]
    figure, (times, rates) = pyplot.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    sizes = [row["bytes"] for row in rows]
    lines = dict(_LINES)
    if collective.name != "all_reduce":
        lines["floor"] = ("memcpy", "k:")
    for key, (label, style) in lines.items():
        if f"{key}_s" not in first:
            continue
        seconds = [row[f"{key}_s"] for row in rows]
        times.plot(sizes, [1e6 * each for each in seconds], style, label=label, linewidth=1)
        if "floor" not in key:
            rates.plot(
                sizes,
                [
                    bus_bandwidth(row["bytes"], each, factor)
                    for row, each in zip(rows, seconds, strict=True)
                ],
                style,
                label=label,
            )
    for axes in (times, rates):
        axes.set(xscale="log", xlabel="bytes")
        axes.grid(visible=True, which="major", alpha=0.3)
    times.set(yscale="log", ylabel="µs of a call")
    rates.set(ylabel="busbw (GB/s)", ylim=(0, None))
    density = "" if first["density"] == 1 else f", {first['density']:g} of blocks not zero"
    figure.suptitle(
        f"{collective.name} {first['op']} {first['dtype']}, {first['ranks']} ranks{density}, "
        f"engine {first['engine']}"
    )
    # Beside the axes: within them, it would cover a point sooner or later.
    figure.legend(*times.get_legend_handles_labels(), loc="outside right upper", fontsize="small")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
