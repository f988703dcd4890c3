"""Tables of what a byte costs, and how many cores a port takes."""

from collections.abc import Callable

from afflux.commands.bench.registry import Row
from afflux.commands.forecast.ports import RATES_GBIT, Forecast
from afflux.commands.forecast.stages import aggregator_stages, worker_stages
from benchmarks.network import costs
from benchmarks.network.costs import stages_of, whole_of
from benchmarks.report import document
from benchmarks.report.columns import aligned
from benchmarks.report.document import Table

__all__ = ["BETWEEN_HOSTS", "TABLES", "text_tables"]

BETWEEN_HOSTS = (
    "drivers/native/aggregator",
    "drivers/native/arithmetic",
    "drivers/native/carriers",
    "drivers/native/collectives",
    "drivers/native/datagrams",
    "drivers/native/engine",
    "drivers/native/hosts",
    "drivers/native/streams",
    "drivers/native/worker",
)
"""The code on which every figure between hosts depends."""

_TIMES_BY_TWO = 1.8

Cells = tuple[list[str], list[list[str]]]


def text_tables(rows: list[Row]) -> str:
    """Show what was measured, for the terminal."""
    figures = rows if all(row.get("quick") for row in rows) else _figures(rows)
    quick = " (a quick run: these are not figures)" if any(row.get("quick") for row in rows) else ""
    return "\n\n".join(
        aligned(f"{title}{quick}", header, cells)
        for title, table in _TITLED.items()
        if (made := table(figures))[1]
        for header, cells in [made]
    )


def _figures(rows: list[Row]) -> list[Row]:
    return [row for row in rows if not row.get("quick")]


def _with_stages(rows: list[Row]) -> list[Row]:
    found = [row for row in rows if row["bench"] == costs.NAME and _has_stages(row)]
    return sorted(found, key=lambda row: int(row["lanes"]))


def _by_stage(
    rows: list[Row],
    stages: Callable[[Row], dict[str, float]],
    whole: Callable[[Row], float],
) -> Cells:
    """Return nanoseconds and cycles for a byte: a line for each stage, columns for each packet."""
    known = _with_stages(rows)
    header = ["stage"]
    lines: dict[str, list[str]] = {}
    for row in known:
        header += [f"{row['lanes']} blocks: ns", "cycles"]
        alone, all_of_it = stages(row), whole(row)
        found = alone | {
            "the stages together": sum(alone.values()),
            "the rest": all_of_it - sum(alone.values()),
            "a whole all-reduce": all_of_it,
            "memcpy of the tensor, beside": stages_of(row).memcpy,
        }
        for name, cost in found.items():
            cycles = f"{cost * row['counter_hz']:.2f}" if row["counter_hz"] else "–"
            lines.setdefault(name, [name]).extend([f"{cost * 1e9:.3f}", cycles])
    return header, list(lines.values())


def _of_worker(rows: list[Row]) -> Cells:
    return _by_stage(
        rows,
        lambda row: worker_stages(stages_of(row), whole_of(row).worker_calls),
        lambda row: whole_of(row).worker,
    )


def _of_aggregator(rows: list[Row]) -> Cells:
    return _by_stage(
        rows,
        lambda row: aggregator_stages(stages_of(row), whole_of(row).aggregator_calls),
        lambda row: whole_of(row).aggregator,
    )


def _ports(rows: list[Row]) -> Cells:
    header = ["who", "packets", *(f"{rate:g} Gbit/s" for rate in RATES_GBIT)]
    cells = []
    for row in _with_stages(rows):
        found = Forecast(row["lanes"], stages_of(row), whole_of(row))
        for who, cores in (
            ("ranks", found.worker_cores),
            ("aggregator", found.aggregator_cores),
        ):
            of_rates = [
                f"{cores(rate):.1f} – {cores(rate, offloads=False):.1f}" for rate in RATES_GBIT
            ]
            cells.append([who, f"{row['lanes']} blocks", *of_rates])
    return header, cells


def _threads(rows: list[Row]) -> Cells:
    header = ["packets", "slots", "one thread: ns for a byte", "calls for a MB"]
    header += ["two threads: ns for a byte", "calls for a MB", "handed over"]
    header += ["times as much by two", "wanted"]
    known = {row["case"]: row for row in rows if row["bench"] == costs.NAME}
    cells = []
    for name, two in known.items():
        one = known.get(name.replace("threads_2_", "threads_1_"))
        if not name.startswith("threads_2_") or one is None:
            continue
        first, second = whole_of(one), whole_of(two)
        times = 2 * first.aggregator / second.aggregator
        cells.append([
            f"{two['lanes']} blocks",
            str(two["slots"]),
            f"{first.aggregator * 1e9:.3f}",
            f"{first.aggregator_calls * 1e6:.0f}",
            f"{second.aggregator * 1e9:.3f}",
            f"{second.aggregator_calls * 1e6:.0f}",
            f"{100 * second.handed_off:.0f} %",
            f"{times:.2f}",
            f"{_TIMES_BY_TWO:g} {_mark(times >= _TIMES_BY_TWO)}",
        ])  # fmt: skip
    return header, cells


def _mark(reached: bool) -> str:
    return "✓" if reached else "✗"


_TITLED: dict[str, Callable[[list[Row]], Cells]] = {
    "A byte at a rank, by stage": _of_worker,
    "A byte at an aggregator, by stage": _of_aggregator,
    "Cores that a full port takes, with all offloads and with none": _ports,
    "An aggregator's threads": _threads,
}


def _has_stages(row: Row) -> bool:
    return "stage_scan_s" in row


def _of_rows(cells: Callable[[list[Row]], Cells], *, stages: bool = True) -> Table:
    return Table(
        costs.NAME,
        lambda rows: document.markdown(*cells(rows)),
        ("drivers/native/costs", *BETWEEN_HOSTS),
        lambda row: _has_stages(row) is stages,
    )


TABLES: document.Tables = {
    "worker_stages": _of_rows(_of_worker),
    "aggregator_stages": _of_rows(_of_aggregator),
    "ports": _of_rows(_ports),
    "threads": _of_rows(_threads, stages=False),
}
