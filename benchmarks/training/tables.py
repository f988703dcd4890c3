"""Tables of the engine in a training loop, and of bytes on the wire.

`python -m benchmarks.training.tables build/bench/engine.json docs/benchmarks.md` renews the text
between `<!-- training figures: NAME -->` and `<!-- end figures -->` there.
"""

import sys

from afflux.commands.bench.registry import Row
from benchmarks.report import document
from benchmarks.report.document import Table
from benchmarks.training import loop, wire_bytes

__all__ = ["TABLES", "main"]

_ENGINES = {"rtl": "rtl, 512 bits", "soft": "soft", "gloo": "Gloo"}


def _loop(rows: list[Row]) -> str:
    header = ["engine", "tensor", "time", "per worker", "engine cycles", "cycles/s"]
    return document.markdown(
        [*header, "wrong elements"],
        [
            [
                _ENGINES[row["engine"]],
                f"{row['bytes'] / 1e6:g} MB",
                f"{row['seconds']:.3f} s",
                f"{row['bytes'] / row['seconds'] / 1e6:.3g} MB/s",
                # Only a simulated engine counts cycles.
                f"{row['cycles'] / 1e3:,.0f} k" if row.get("cycles") else "",
                f"{row['cycles_per_s'] / 1e6:.2f} M" if row.get("cycles") else "",
                str(row["wrong"]),
            ]
            for row in rows
        ],
    )


def _wire_bytes(rows: list[Row]) -> str:
    names = ["sent", "received", "least_sent", "least_received"]
    return document.markdown(
        ["workers", "density", *(name.replace("_", " ") for name in names)],
        [
            [str(row["workers"]), f"{row['density']:g}", *(f"{row[name]:.3f}" for name in names)]
            for row in rows
        ],
    )


_SOFT = ("drivers/native/arithmetic", "drivers/native/engine", "drivers/native/worker")
_ENGINE = ("hdl/afflux_hdl/engine", "sim/afflux_sim/rtl")

TABLES: document.Tables = {
    "loop": Table(loop.NAME, _loop, (*_SOFT, *_ENGINE)),
    "wire_bytes": Table(wire_bytes.NAME, _wire_bytes, _SOFT),
}


def main(arguments: list[str] | None = None) -> int:
    """Renew the tables of the document that the second argument names."""
    return document.renew("training figures", TABLES, arguments)


if __name__ == "__main__":
    sys.exit(main())
