"""Tables of the families' figures, for the terminal and for the documents."""

from collections.abc import Sequence
from functools import partial

from afflux.commands.bench.registry import Row
from benchmarks.ranks.families import FAMILIES
from benchmarks.ranks.family import Family, FamilyCase
from benchmarks.report import document
from benchmarks.report.columns import aligned
from benchmarks.report.document import Table
from benchmarks.report.durations import duration

__all__ = ["FAMILY_TABLES", "MEASURED", "family_table"]

MEASURED = ("drivers/native/shared", "host/afflux/adapters", "host/afflux/group")
"""The code on which figures between ranks of one host depend."""

_HEADERS = {
    "collectives": ["floor", "times the floor"],
    "mpi": ["MPI", "MPI by Afflux"],
    "subgroups": [
        *("first use", "of Gloo", "destroyed", "of Gloo"),
        *("descriptors", "of Gloo", "threads", "of Gloo"),
    ],
}


def family_table(family: Family, rows: Sequence[Row]) -> str:
    """Show the figures beside the targets, for the terminal."""
    heading = f"{family.name}: medians, time of a call"
    if any(row.get("quick") for row in rows):
        heading = f"{family.name}: a quick run, with few and small calls: these are not figures"
    header = [*_header(family), "wrong", "wanted"]
    cells = []
    for case, row in _with_case(family, rows):
        if said := _not_there(row):
            # Beside its time with Gloo, if there is one, the reason is all there is to say.
            cells.append([*_line(family, case, row), "", said])
        else:
            cells.append([*_line(family, case, row), str(row["wrong"]), _reached(case, row)])
    return aligned(heading, header, cells)


def _header(family: Family) -> list[str]:
    first = ["what", "ranks", "Afflux", "Gloo", "times as fast"]
    return first + _HEADERS.get(family.name, [])


def _with_case(family: Family, rows: Sequence[Row]) -> list[tuple[FamilyCase, Row]]:
    """Return the rows in the order of the cases, each with its own."""
    return [
        (case, row)
        for case in family.cases
        for row in rows
        if row["bench"] == family.bench and row["case"] == case.name
    ]


def _not_there(row: Row) -> str:
    """Return why a row has no figures of Afflux; empty if it has."""
    if row.get("not_measured"):
        return f"not measured: {row['not_measured']}"
    return f"failed: {row['failed']}" if row["failed"] else ""


def _line(family: Family, case: FamilyCase, row: Row) -> list[str]:
    line = [case.title, str(row["ranks"]), _time(row, "afflux_s"), _time(row, "gloo_s")]
    line.append(_number(row, "ratio"))
    if family.name == "collectives":
        line.append(_time(row, "floor_s"))
        both = "floor_s" in row and "afflux_s" in row
        line.append(f"{row['afflux_s'] / row['floor_s']:.2f}" if both else "–")
    elif family.name == "mpi":
        line += [_time(row, "mpi_s"), _number(row, "mpi_ratio")]
    elif family.name == "subgroups":
        for phase in ("first_use", "destroy"):
            line += [_time(row, f"afflux_{phase}_s"), _time(row, f"gloo_{phase}_s")]
        for what in ("descriptors", "threads"):
            line += [_number(row, f"afflux_{what}", ".3g"), _number(row, f"gloo_{what}", ".3g")]
    return line


def _reached(case: FamilyCase, row: Row) -> str:
    """Return the target, with a mark: reached or not."""
    found = []
    if "ratio" in row:
        wanted = case.wanted.get(row["ranks"], 0.0)
        found.append(f"{wanted:g} {_mark(row['ratio'] >= wanted)}")
    if case.wanted_of_mpi is not None and "mpi_ratio" in row:
        met = row["mpi_ratio"] >= case.wanted_of_mpi
        found.append(f"of MPI {case.wanted_of_mpi:g} {_mark(met)}")
    return ", ".join(found)


def _mark(met: bool) -> str:
    return "✓" if met else "✗"


def _time(row: Row, key: str) -> str:
    return duration(row[key]) if key in row else "–"


def _number(row: Row, key: str, form: str = ".2f") -> str:
    return f"{row[key]:{form}}" if key in row else "–"


def _table_of(family: Family, rows: list[Row]) -> str:
    lines = []
    for case, row in _with_case(family, rows):
        line = _line(family, case, row)
        if said := _not_there(row):
            line[0] += f" ({said})"
        lines.append(line)
    return document.markdown(_header(family), lines)


FAMILY_TABLES: document.Tables = {
    name: Table(family.bench, partial(_table_of, family), MEASURED)
    for name, family in FAMILIES.items()
}
