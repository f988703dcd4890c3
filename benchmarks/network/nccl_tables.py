"""The figures of NCCL's plugin, for the terminal, the documents, and the plugin itself.

`python -m benchmarks.network.nccl_tables build/bench/nccl.json docs/nccl.md` renews the tables
there. With `--sizes build/bench/nccl.json soft` it writes the table of sizes that ships with the
plugin (`drivers/native/nccl/measured_sizes.hpp`), of the engines that are named.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from afflux.commands.bench.registry import Row
from afflux.commands.nccl_sizes import table_line, winning
from benchmarks.report import document
from benchmarks.report.columns import aligned
from benchmarks.report.document import Table
from benchmarks.report.durations import duration
from benchmarks.report.figures import read_rows
from benchmarks.report.stamp import ROOT

__all__ = ["NAME", "TABLES", "WAYS", "measured_sizes", "text_table"]

NAME = "nccl"
"""Value of the rows' "bench"."""

_RINGS = ("ring", "socket")
_ENGINES = ("soft", "streams", "mesh")
WAYS = {
    "soft": "aggregator of packets",
    "streams": "aggregator of streams",
    "mesh": "`streams://`",
    "ring": "ring",
    "socket": "ring of NCCL's sockets",
}
"""Of summing, as tables name them."""

_SHIPPED = ROOT / "drivers" / "native" / "nccl" / "measured_sizes.hpp"
_UNITS = ((1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))

_LINKS = 1.5
"""As many times what its links need a ring of the largest size may take."""

Setup = tuple[float, int]


def _setups(rows: Sequence[Row]) -> list[Setup]:
    """Return the rates, 0 for none, and numbers of nodes that were measured."""
    return sorted({(row["rate_gbit"] or 0.0, row["hosts"]) for row in rows})


def _of(rows: Sequence[Row], setup: Setup, key: str) -> dict[str, dict[int, float]]:
    """Return values of a setup by way and bytes."""
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        if (row["rate_gbit"] or 0.0, row["hosts"]) == setup:
            found.setdefault(row["way"], {})[row["bytes"]] = row[key]
    return found


def _sized(count: int) -> str:
    unit, name = next((unit, name) for unit, name in _UNITS if count >= unit)
    return f"{count // unit} {name}"


def _best_ring(times: dict[str, dict[int, float]]) -> dict[int, float]:
    """Return the faster ring's time, by bytes."""
    rings = [times[name] for name in _RINGS if name in times]
    return {size: min(each[size] for each in rings) for size in rings[0]}


def _is_of_links(setup: Setup, ring: dict[int, float]) -> bool:
    """Return whether the links were the limit of a ring, and not the processors of this machine."""
    rate, hosts = setup
    size = max(ring)
    link_s = 2 * (hosts - 1) / hosts * 8 * size / (1e9 * rate) if rate else 0.0
    return ring[size] <= _LINKS * link_s


def _cells(rows: Sequence[Row], ways: Sequence[str], *, limited: bool) -> Iterator[list[str]]:
    for setup in _setups(rows):
        rate, hosts = setup
        if bool(rate) is not limited:
            continue
        times, used = _of(rows, setup, "seconds"), _of(rows, setup, "processor_s")
        shown = [way for way in ways if way in times]
        for size in sorted(times[shown[0]]):
            first = [f"{rate:g} Gbit/s"] if limited else []
            cells = [duration(times[way][size]) for way in shown]
            cells += [duration(used[way][size]) for way in shown]
            yield [*first, f"{hosts}", _sized(size), *cells]


def _header(ways: Sequence[str], *, limited: bool) -> list[str]:
    names = [WAYS[way] for way in ways]
    processor = [f"processor: {name}" for name in names]
    return [*(["link"] if limited else []), "nodes", "bytes", *names, *processor]


def _table(ways: Sequence[str], *, limited: bool, rows: list[Row]) -> str:
    shown = [way for way in ways if any(row["way"] == way for row in rows)]
    return document.markdown(_header(shown, limited=limited), _cells(rows, shown, limited=limited))


def _choices(rows: list[Row]) -> str:
    return _table((*_ENGINES, *_RINGS), limited=True, rows=rows)


def _transports(rows: list[Row]) -> str:
    return _table(_RINGS, limited=False, rows=rows)


_PLUGIN = ("drivers/native/nccl", "drivers/native/control")
_SUMS = (
    "drivers/native/worker", "drivers/native/aggregator", "drivers/native/engine",
    "drivers/native/streams",
)  # fmt: skip

TABLES: document.Tables = {
    "choices": Table(
        NAME, _choices, (*_PLUGIN, *_SUMS, "benchmarks/network"), lambda row: bool(row["rate_gbit"])
    ),
    "transports": Table(
        NAME, _transports, (*_PLUGIN, "benchmarks/network"), lambda row: not row["rate_gbit"]
    ),
}
MARK = "nccl figures"


def text_table(rows: list[Row]) -> str:
    """Show all figures, for the terminal."""
    ways = [way for way in WAYS if any(row["way"] == way for row in rows)]
    cells = [
        [row["way"], f"{row['rate_gbit'] or 'no limit'}", f"{row['hosts']}", f"{row['bytes']}",
         duration(row["seconds"]), duration(row["processor_s"])]
        for row in sorted(rows, key=lambda row: ways.index(row["way"]))
    ]  # fmt: skip
    header = ["who sums", "Gbit/s", "nodes", "bytes", "a call", "processor time of a node"]
    return aligned("The least of several runs", header, cells)


def measured_sizes(rows: list[Row], engines: Sequence[str] = _ENGINES) -> str:
    """Return the table of sizes that these figures make, beside the faster ring each.

    Links that were not the limit have no line: it would be of this machine's processors.
    """
    lines = ["# engine  Gbit/s  nodes  bytes"]
    for engine in engines:
        for setup in _setups(rows):
            times = _of(rows, setup, "seconds")
            if engine not in times or not any(name in times for name in _RINGS):
                continue
            ring = _best_ring(times)
            if _is_of_links(setup, ring):
                lines.append(table_line(engine, *setup, winning(ring, times[engine])))
    return "".join(f"{line}\n" for line in lines)


def _ship(figures: Path, engines: Sequence[str]) -> int:
    """Renew the table that ships with the plugin."""
    rows = [row for row in read_rows(figures) if row["bench"] == NAME]
    made = measured_sizes(rows, engines or _ENGINES)
    text = _SHIPPED.read_text(encoding="utf-8")
    text = re.sub(r'R"\(.*?\)"', lambda _: f'R"(\n{made})"', text, flags=re.DOTALL)
    _SHIPPED.write_text(text, encoding="utf-8")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Renew the tables of the document that the second argument names."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["--sizes"]:
        return _ship(Path(given[1]), given[2:])
    return document.renew(MARK, TABLES, given)


if __name__ == "__main__":
    sys.exit(main())
