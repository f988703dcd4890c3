"""The table of `make bench-overlap`: steps of training with priorities and without.

`python -m benchmarks.network.overlap_tables build/bench/overlap.json docs/schemes/mlsl.md` renews
the text between `<!-- overlap figures: ways -->` and `<!-- end figures -->` there.
"""

import sys

from afflux.commands.bench.registry import Row
from benchmarks.network.cost_tables import BETWEEN_HOSTS
from benchmarks.network.overlap import NAME
from benchmarks.report import document
from benchmarks.report.document import Table

__all__ = ["TABLES", "main"]


def _ways(rows: list[Row]) -> str:
    header = ["way", "step", "exposed", "of DDP over Afflux", "times as fast as Gloo", "waited"]
    return document.markdown(header, map(_line, rows))


def _line(row: Row) -> list[str]:
    alone, share = row["case"] == "alone", row["exposed_of_own"]
    known = row.get("statistics")
    return [
        row["title"],
        _milliseconds(row["step_s"]),
        "–" if alone else _milliseconds(row["exposed_s"]),
        "–" if alone or share is None else f"{share:.2f}",
        f"{row['times_gloo']:.2f}",
        _milliseconds(known["exposed_s"] / known["rounds"]) if known else "–",
    ]


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.0f} ms"


TABLES: document.Tables = {
    "ways": Table(NAME, _ways, (*BETWEEN_HOSTS, "host/afflux/overlap")),
}


def main(arguments: list[str] | None = None) -> int:
    """Renew the table of the document that the second argument names."""
    return document.renew("overlap figures", TABLES, arguments)


if __name__ == "__main__":
    sys.exit(main())
