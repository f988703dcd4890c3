"""Tables of the host's figures, for the terminal and for the documents.

`python -m benchmarks.ranks.tables build/bench/host.json docs/benchmarks.md` renews the text
between `<!-- host figures: NAME -->` and `<!-- end figures -->` there.
"""

import sys

from afflux.commands.bench.registry import Row
from benchmarks.ranks.cases import CASES, DDP_OVERHEAD_WANTED, Case
from benchmarks.ranks.family_tables import FAMILY_TABLES, MEASURED
from benchmarks.report import document
from benchmarks.report.columns import aligned
from benchmarks.report.document import Table
from benchmarks.report.durations import duration

__all__ = ["TABLES", "render", "text_table"]

_HEADER = ["what", "ranks", "Afflux", "Gloo", "times as fast", "floor", "times the floor"]
_HEADER += ["CPU", "CPU of Gloo", "wrong"]


def text_table(rows: list[Row]) -> str:
    """Show the figures beside the targets, for the terminal; rows of bench "host"."""
    heading = "Medians; times of a call, CPU of a rank for a call"
    if any(row.get("quick") for row in rows):
        heading = "A quick run, with small tensors and few calls: these are not figures"
    cells = [_speed_line(case, row) + _wanted(case, row) for case, row in _with_case(rows)]
    text = aligned(heading, [*_HEADER, "wanted: times", "of the floor"], cells)
    steps = [
        f"DDP step, {row['bucket_bytes'] / 2**20:g}-MiB buckets, {row['ranks']} ranks: "
        f"{duration(row['afflux_s'])}, the engine alone {duration(row['raw_s'])} "
        f"({row['overhead']:+.1%}, wanted < {DDP_OVERHEAD_WANTED:.0%}), "
        f"Gloo {duration(row['gloo_s'])}"
        for row in rows
        if row["case"] == "ddp_step"
    ]
    return "\n".join([text, "", *steps])


def _with_case(rows: list[Row]) -> list[tuple[Case, Row]]:
    """Return the rows in the order of the cases, each with its own."""
    return [(case, row) for case in CASES for row in rows if row["case"] == case.name]


def _of_floor(case: Case, row: Row) -> float:
    share: float = row["afflux_s"] / row[case.floor_key]
    return share


def _wanted(case: Case, row: Row) -> list[str]:
    """Return the last two columns of the terminal's table."""
    times, most = case.wanted.get(row["ranks"]), case.floor_wanted
    return [
        "–" if times is None else f"{times:g} {'✓' if row['ratio'] >= times else '✗'}",
        "–" if most is None else f"≤ {most:g} {'✓' if _of_floor(case, row) <= most else '✗'}",
    ]


def _speed_line(case: Case, row: Row) -> list[str]:
    return [
        case.title,
        str(row["ranks"]),
        duration(row["afflux_s"]),
        duration(row["gloo_s"]),
        f"{row['ratio']:.2f}",
        duration(row[case.floor_key]),
        f"{_of_floor(case, row):.2f}",
        duration(row["afflux_cpu_s"]),
        duration(row["gloo_cpu_s"]),
        "–" if row["wrong"] is None else str(row["wrong"]),
    ]


def _speed(rows: list[Row]) -> str:
    lines = [_speed_line(case, row) for case, row in _with_case(rows)]
    return document.markdown(_HEADER, lines)


def _steps(rows: list[Row]) -> str:
    header = ["ranks", "bucket", "Afflux", "Gloo", "times as fast"]
    return document.markdown(
        header,
        [
            [
                str(row["ranks"]),
                f"{row['bucket_bytes'] / 2**20:g} MiB",
                duration(row["afflux_s"]),
                duration(row["gloo_s"]),
                f"{row['ratio']:.2f}",
            ]
            for row in rows
        ],
    )


def _packets(rows: list[Row]) -> str:
    header = ["way", "type", "instructions", "GB/s", "of memcpy"]
    return document.markdown(
        header,
        [
            [
                row["what"],
                row["dtype"],
                row["instruction_set"],
                f"{row['moved'] / row['packets_cpu_s'] / 1e9:.2f}",
                f"{row['cpu_ratio']:.2f}",
            ]
            for row in rows
        ],
    )


MARK = "host figures"


def _is_step(row: Row) -> bool:
    return row["case"] == "ddp_step"


TABLES: document.Tables = {
    "speed": Table("host", _speed, MEASURED, lambda row: not _is_step(row)),
    "ddp_step": Table("host", _steps, MEASURED, _is_step),
    "packets": Table("packets", _packets, ("drivers/native/worker", "drivers/native/packet")),
    **FAMILY_TABLES,
}


def render(text: str, rows: list[Row]) -> str:
    """Renew the tables of figures in `text`. Raises `KeyError` for an unknown name."""
    return document.render(text, MARK, TABLES, rows)


def main(arguments: list[str] | None = None) -> int:
    """Renew the tables of the document that the second argument names."""
    return document.renew(MARK, TABLES, arguments)


if __name__ == "__main__":
    sys.exit(main())
