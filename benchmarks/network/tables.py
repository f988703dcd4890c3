"""Tables of the network's figures, for the terminal and for the documents.

`python -m benchmarks.network.tables build/bench/network.json docs/benchmarks.md` renews the text
between `<!-- network figures: NAME -->` and `<!-- end figures -->` there.
"""

import sys
from collections.abc import Callable, Sequence

from afflux.commands.bench.registry import Row
from benchmarks.network import cost_tables, decode, shares, versions
from benchmarks.network.cases import PLANS, Case, Plan
from benchmarks.report import document
from benchmarks.report.columns import aligned
from benchmarks.report.document import Table
from benchmarks.report.durations import duration

__all__ = ["NAMES", "TABLES", "in_order", "render", "table_of", "text_table"]

NAMES = {
    "auto": "no address given",
    "auto_host": "no address given, rounded by host",
    "udp": "aggregator",
    "udp_host": "aggregator, rounded by host",
    "tcp": "aggregator of streams",
    "soft": "beside rank 0",
    "streams": "streams at one interface",
    "two": "streams at two interfaces",
    "ucx": "streams by UCX",
}
"""Of topologies, in tables."""

_HEADER = ["what", "who sums", "Afflux", "Gloo", "times as fast", "Gbit/s", "wire's limit"]
_HEADER += ["of the limit", "CPU", "CPU of Gloo", "CPU of the aggregator", "wrong"]

_REFERENCES = {"loss_0": "without loss", "gigabit": "with 4 MiB", "incast_deep": "with 1 MiB"}
"""The setups whose speed counts as 1."""


def text_table(rows: list[Row], plans: Sequence[Plan] = PLANS) -> str:
    """Show the figures beside the targets, for the terminal."""
    heading = "Medians; times of a call, CPU of a rank for a call"
    if any(row.get("quick") for row in rows):
        heading = "A quick run, with small tensors and few calls: these are not figures"
    cells = []
    for plan, case, row in in_order(rows, plans):
        line = [f"{plan.setup.name}: {case.name}", *_line(case, row)[1:]]
        cells.append([*line, _wanted(plan, case, row, rows)])
    text = aligned(heading, [*_HEADER, "wanted"], cells)
    said = {
        f"{row['setup']}: {row['case']}, {row.get('topology', '')}: {reason}"
        for row in rows
        if (reason := row.get("failed") or row.get("not_measured"))
    }
    return "\n".join([text, *([""] if said else []), *sorted(said)])


def in_order(rows: list[Row], plans: Sequence[Plan] = PLANS) -> list[tuple[Plan, Case, Row]]:
    """Return the rows in the order of the plans, each with its own."""
    return [
        (plan, case, row)
        for plan in plans
        for case in plan.cases
        for row in rows
        if (row["setup"], row["case"]) == (plan.setup.name, case.name)
    ]


def _wanted(plan: Plan, case: Case, row: Row, rows: list[Row]) -> str:
    """Return the target, and whether it was reached; of which contender, unless it is of Gloo."""
    found: list[str] = []
    ratio = row.get("ratio")
    if plan.setup.reference:
        share, wanted = _of_reference(plan, row, rows), plan.setup.reference_wanted
        if share is not None:
            what = f"{wanted:g} of the speed {_REFERENCES[plan.setup.reference]}: {share:.2f}"
            found.append(f"{what} {_mark(share >= wanted)}")
    elif (times := case.wanted.get(row.get("topology", ""))) and ratio is not None:
        found.append(f"{times:g} {_mark(ratio >= times)}")
    for name, times in case.wanted_beside.items():
        if (other := row.get(f"{name}_ratio")) is not None:
            found.append(f"{times:g} of {_spaced(name)}: {other:.2f} {_mark(other >= times)}")
    return ", ".join(found) or "–"


def _mark(reached: bool) -> str:
    return "✓" if reached else "✗"


def _of_reference(plan: Plan, row: Row, rows: list[Row]) -> float | None:
    """Return Afflux's speed by that in the setup's reference; None if that is not known."""
    wanted = (plan.setup.reference, row["case"], row.get("topology"), row["bytes"])
    for other in rows:
        here = (other["setup"], other["case"], other.get("topology"), other["bytes"])
        if here == wanted and "afflux_s" in other and "afflux_s" in row:
            share: float = other["afflux_s"] / row["afflux_s"]
            return share
    return None


def _line(case: Case, row: Row) -> list[str]:
    ours, limit = row.get("afflux_s"), row.get("limit_s")
    rate = "–"
    if ours and case.kind == "all_reduce" and row["bytes"] >= 1 << 20:
        rate = f"{row['bytes'] * 8 / ours / 1e9:.2f}"
    return [
        row.get("title", case.title),
        NAMES.get(row.get("topology", ""), "–"),
        _time(ours),
        _time(row.get("gloo_s")),
        f"{row['ratio']:.2f}" if "ratio" in row else "–",
        rate,
        _time(limit),
        f"{limit / ours:.2f}" if limit and ours else "–",
        _time(row.get("afflux_cpu_s")),
        _time(row.get("gloo_cpu_s")),
        _time(row.get("aggregator_cpu_s")),
        "–" if row.get("wrong") is None else str(row["wrong"]),
    ]


def _time(seconds: float | None) -> str:
    return duration(seconds) if seconds else "–"


def _with_reason(title: str, row: Row) -> str:
    if row.get("failed"):
        return f"{title} ({row['failed']})"
    return f"{title} (not measured: {row['not_measured']})" if row.get("not_measured") else title


def _of_cases(
    make: Callable[[list[Row]], str],
    shown: Callable[[Plan, Case], bool],
    plans: Sequence[Plan] = PLANS,
    also: Sequence[str] = (),
) -> Table:
    """Return a table of the cases that are shown, with what it measures beside the native code."""
    cases = {(plan.setup.name, case.name) for plan in plans for case in plan.cases
             if shown(plan, case)}  # fmt: skip
    return Table(
        "network",
        make,
        (*cost_tables.BETWEEN_HOSTS, "host/afflux/group", *also),
        lambda row: (row["setup"], row["case"]) in cases,
    )


def _is_step(_: Plan, case: Case) -> bool:
    return case.kind in ("step", "sharded_step")


def _steps(rows: list[Row]) -> str:
    """Return the table of steps of training, of which a part is computed whoever sums."""
    header = ["what", "who sums", "Afflux", "Gloo", "times as fast", "computing alone"]
    header += ["communication", "that of Gloo", "times as fast in it", "CPU", "CPU of Gloo"]
    header += ["CPU of the aggregator", "wrong"]
    lines = []
    for plan, case, row in in_order(rows):
        what, who, ours, gloo, times, *_, cpu, cpu_gloo, cpu_aggregator, wrong = _line(case, row)
        # A step's time beyond its computing, where that is known: the communication that shows.
        alone = row.get("alone_s")
        own, other = (
            max(0.0, row.get(key, 0.0) - alone) if alone else None for key in ("afflux_s", "gloo_s")
        )
        title = _with_reason(f"{plan.setup.title}: {what}", row)
        seen = f"{other / own:.2f}" if own and other else "–"
        line = [title, who, ours, gloo, times, _time(alone), _time(own), _time(other), seen]
        lines.append([*line, cpu, cpu_gloo, cpu_aggregator, wrong])
    return document.markdown(header, lines)


def table_of(plans: Sequence[Plan], *also: str) -> Table:
    """Return the table of these plans, with a setup's title if there are several.

    Contenders that setups have beside Gloo follow it, each with the times as fast as it.

    Args:
        plans: Of which it shows all but steps of training.
        also: Paths of code on which the figures depend, beside those of all figures between hosts.
    """
    beside = list(dict.fromkeys(name for plan in plans for name in plan.setup.beside))

    def table(rows: list[Row]) -> str:
        lines = []
        for plan, case, row in in_order(rows, plans):
            first, *others = _line(case, row)
            title = first if len(plans) == 1 else f"{plan.setup.title}: {first}"
            added = [cell for name in beside for cell in _of_contender(name, row)]
            lines.append([_with_reason(title, row), *others, *added])
        titles = [title for name in beside for title in (_spaced(name), "times as fast as it")]
        return document.markdown([*_HEADER, *titles], lines)

    return _of_cases(table, lambda plan, case: not _is_step(plan, case), plans, also)


def _of_contender(name: str, row: Row) -> list[str]:
    ratio = row.get(f"{name}_ratio")
    return [_time(row.get(f"{name}_s")), f"{ratio:.2f}" if ratio else "–"]


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _of_setups(*names: str) -> Table:
    return table_of([plan for plan in PLANS if plan.setup.name in names])


def _beside_itself(rows: list[Row]) -> str:
    """Return the table of the setups that have a reference; rows of those too."""
    header = ["what", "who sums", "Afflux", "of its speed otherwise", "Gloo", "times as fast"]
    lines = []
    for plan, case, row in in_order(rows):
        if plan.setup.reference:
            share = _of_reference(plan, row, rows)
            what, who, ours, gloo, times, *_ = _line(case, row)
            told = f"{share:.2f} ({_REFERENCES[plan.setup.reference]})" if share else "–"
            title = _with_reason(f"{plan.setup.title}: {what}", row)
            lines.append([title, who, ours, told, gloo, times])
    return document.markdown(header, lines)


def _beside_mpi(rows: list[Row]) -> str:
    header = ["what", "who sums", "Afflux", "MPI", "times as fast", "Gloo", "CPU", "CPU of MPI"]
    return document.markdown(
        header,
        [
            [
                _with_reason(f"{plan.setup.title}: {row.get('title', case.title)}", row),
                NAMES.get(row.get("topology", ""), "–"),
                _time(row.get("afflux_s")),
                _time(row.get("mpi_s")),
                f"{row['mpi_ratio']:.2f}" if "mpi_ratio" in row else "–",
                _time(row.get("gloo_s")),
                _time(row.get("afflux_cpu_s")),
                _time(row.get("mpi_cpu_s")),
            ]
            for plan, case, row in in_order(rows)
        ],
    )


def _is_compared(plan: Plan, _: Case) -> bool:
    return bool(plan.setup.reference) or plan.setup.name in _REFERENCES


MARK = "network figures"

TABLES: document.Tables = {
    "gigabit": _of_setups("gigabit"),
    "jumbo": _of_setups("jumbo"),
    "fast": _of_setups(
        "ten", "ten_two", "twenty_five_two", "unlimited_two", "unlimited_four", "ten_eight"
    ),
    "steps": _of_cases(_steps, _is_step, also=["host/afflux/sparse"]),
    "hosts": _of_setups("pairs", "two_pairs", "two_pairs_ten", "two_fours", "eight"),
    "interfaces": _of_setups("interfaces"),
    "losses": _of_cases(_beside_itself, _is_compared),
    "mpi": _of_cases(_beside_mpi, lambda plan, _: plan.setup.with_mpi),
    "decode": Table(decode.NAME, decode.table, (*cost_tables.BETWEEN_HOSTS, "host/afflux/group")),
    "versions": Table(
        versions.NAME,
        versions.table,
        (*cost_tables.BETWEEN_HOSTS, "drivers/native/shared", "drivers/native/sums"),
    ),
    "shares": Table(shares.NAME, shares.table, (*cost_tables.BETWEEN_HOSTS, "host/afflux/group")),
    **cost_tables.TABLES,
}


def render(text: str, rows: list[Row]) -> str:
    """Renew the tables of figures in `text`. Raises `KeyError` for an unknown name."""
    return document.render(text, MARK, TABLES, rows)


def main(arguments: list[str] | None = None) -> int:
    """Renew the tables of the document that the second argument names."""
    return document.renew(MARK, TABLES, arguments)


if __name__ == "__main__":
    sys.exit(main())
