"""The tables of `docs/scaling.md`: `python -m docs.generate.scaling_tables docs/scaling.md`."""

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from afflux_hdl.contract import wire
from docs.generate.cluster_events import play, play_ring
from docs.generate.cluster_formulas import (
    Cluster,
    all_reduce_s,
    ring_s,
    round_trip_s,
    slots_needed,
    union_density,
)

__all__ = ["TABLES", "render"]

_MIB = 2**20
_TENSOR_BYTES = 100 * _MIB
_PLAYED_ROUNDS = 20


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.1f}"


def _dense_table() -> str:
    lines = [
        "| workers × link | star, one 100G port | 4 engines | tree, 8 workers a leaf | ring |",
        "|---|---|---|---|---|",
    ]
    for workers, rate in ((4, 10), (10, 10), (4, 25), (4, 100), (8, 100), (32, 100), (64, 100)):
        c = Cluster(workers=workers, worker_bits_per_s=rate * 1e9, slots=512)
        cells = [
            _milliseconds(all_reduce_s(c, _TENSOR_BYTES)),
            _milliseconds(all_reduce_s(replace(c, engines=4), _TENSOR_BYTES)),
            _milliseconds(all_reduce_s(replace(c, leaves=workers // 8), _TENSOR_BYTES))
            if workers >= 16
            else "–",
            _milliseconds(ring_s(c, _TENSOR_BYTES)),
        ]
        lines.append(f"| {workers} × {rate}G | {' | '.join(cells)} |")
    return "\n".join(lines)


def _sparse_table() -> str:
    lines = [
        "| workers | density | union | unicast | multicast | 4 engines, multicast | dense ring |",
        "|---|---|---|---|---|---|---|",
    ]
    for workers in (8, 32):
        for density in (0.4, 0.1, 0.01):
            union = union_density(density, workers)
            c = Cluster(workers=workers, density=density, union=union, slots=512)
            many = replace(c, multicast=True)
            cells = [
                _milliseconds(all_reduce_s(c, _TENSOR_BYTES)),
                _milliseconds(all_reduce_s(many, _TENSOR_BYTES)),
                _milliseconds(all_reduce_s(replace(many, engines=4), _TENSOR_BYTES)),
                _milliseconds(ring_s(c, _TENSOR_BYTES)),
            ]
            lines.append(f"| {workers} | {density:g} | {union:.3f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _window_table() -> str:
    lines = [
        "| cluster | round trip | slots needed | at the engine (2 versions of 4 KiB a slot) |",
        "|---|---|---|---|",
    ]
    for name, c in (
        ("4 × 100G, one port, 2 µs a hop", Cluster(workers=4)),
        ("10 × 10G, one port, 2 µs a hop", Cluster(workers=10, worker_bits_per_s=10e9)),
        ("64 × 100G, one port, 2 µs a hop", Cluster(workers=64)),
        ("4 × 100G, one port, 5 µs a hop", Cluster(workers=4, link_delay_s=5e-6)),
        ("4 × 100G, four engines, 5 µs a hop", Cluster(workers=4, engines=4, link_delay_s=5e-6)),
        ("64 × 100G, tree of 8 × 8, 2 µs a hop", Cluster(workers=64, leaves=8)),
    ):
        need = slots_needed(c)
        lines.append(
            f"| {name} | {1e6 * round_trip_s(c):.0f} µs | {need} "
            f"| {need * 2 * wire.LANES_MAX * wire.BLOCK_BYTES // 1024} KiB |"
        )
    return "\n".join(lines)


def _played_table() -> str:
    lines = [
        "| cluster | slots | formula | played | difference |",
        "|---|---|---|---|---|",
    ]
    sparse = Cluster(workers=8, density=0.1, union=union_density(0.1, 8))
    for name, c in (
        ("4 × 100G, one port", Cluster(workers=4)),
        ("10 × 10G, one port", Cluster(workers=10, worker_bits_per_s=10e9)),
        ("2 × 100G, one slot, 20 µs a hop", Cluster(workers=2, slots=1, link_delay_s=20e-6)),
        ("8 × 100G, density 0.1, unicast", sparse),
        ("8 × 100G, density 0.1, multicast", replace(sparse, multicast=True)),
        ("8 × 100G, 8 engines", Cluster(workers=8, engines=8)),
        ("16 × 100G, tree of 4 × 4", Cluster(workers=16, leaves=4, slots=32)),
    ):
        size = _PLAYED_ROUNDS * c.slots * c.lanes * wire.BLOCK_BYTES / c.union
        lines.append(_played_line(name, c.slots, all_reduce_s(c, size), play(c, _PLAYED_ROUNDS)))
    ring = Cluster(workers=8)
    lines.append(
        _played_line("ring of 8 × 100G, 1 MB", "–", ring_s(ring, 1e6), play_ring(ring, 1e6))
    )
    return "\n".join(lines)


def _played_line(name: str, slots: object, formula: float, played: float) -> str:
    return (
        f"| {name} | {slots} | {1e6 * formula:,.0f} µs | {1e6 * played:,.0f} µs "
        f"| {played / formula - 1:+.1%} |"
    )


TABLES: dict[str, Callable[[], str]] = {
    "dense": _dense_table,
    "sparse": _sparse_table,
    "window": _window_table,
    "played": _played_table,
}
"""Tables of `docs/scaling.md`, by the name in their marks."""


def render(text: str) -> str:
    """Return `text` with its tables renewed. `KeyError` for an unknown name."""

    def section(match: re.Match[str]) -> str:
        name = match.group(1)
        return f"<!-- topology: {name} -->\n{TABLES[name]()}\n<!-- end topology -->"

    pattern = r"<!-- topology: (\w+) -->\n.*?<!-- end topology -->"
    return re.sub(pattern, section, text, flags=re.DOTALL)


def main(arguments: list[str] | None = None) -> int:
    """Renew the tables of the document that the first argument names."""
    path = Path((sys.argv[1:] if arguments is None else arguments)[0])
    path.write_text(render(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
