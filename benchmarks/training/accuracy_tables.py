"""The table of what sums of several systems lose.

`python -m benchmarks.training.accuracy_tables build/bench/engine.json docs/accuracy.md` renews the
text between `<!-- accuracy figures: sums -->` and `<!-- end figures -->` there.
"""

import sys

from afflux.commands.bench.registry import Row
from benchmarks.report import document
from benchmarks.report.document import Table
from benchmarks.training import accuracy

__all__ = ["TABLES", "main"]

_CALLED = ("Afflux", "Gloo")


def _sums(rows: list[Row]) -> str:
    header = ["sums of 8 ranks by", "float32: wrong", "off by", "bfloat16: wrong", "off by"]
    return document.markdown(
        [*header, "0.001 beside 1e10", "1e9 + 1 − 1e9"],
        [
            [
                row["system"] + ("" if row["system"] in _CALLED else " (model)"),
                _share(row["float32_wrong"]),
                f"{row['float32_units']:,}",
                _share(row["bfloat16_wrong"]),
                f"{row['bfloat16_units']:,}",
                f"{row['beside']:.3g}",
                f"{row['cancelled']:g}",
            ]
            for row in rows
        ],
    )


def _share(wrong: float) -> str:
    return f"{100 * wrong:.3g} %"


TABLES: document.Tables = {
    "sums": Table(
        accuracy.NAME, _sums, ("drivers/native/sums", "host/afflux/group/reducers/exact_sums.py")
    ),
}


def main(arguments: list[str] | None = None) -> int:
    """Renew the table of the document that the second argument names."""
    return document.renew("accuracy figures", TABLES, arguments)


if __name__ == "__main__":
    sys.exit(main())
