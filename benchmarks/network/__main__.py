"""`python -m benchmarks.network`: Afflux between hosts beside Gloo, into build/bench/network.json.

`--suite sparse` measures the workloads of sparse tensors instead, into build/bench/sparse.json.

The hosts are namespaces of this machine, at the ports of a switch of given rates. Runs of Afflux,
by each way of summing, and of Gloo alternate. Targets are shown beside the figures; missing one is
not an error, but wrong elements are, and so is a call that works with Gloo and fails with Afflux.
"""

import argparse
import dataclasses
import json
import os
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from afflux.commands.bench.interruption import terminated_as_interrupted
from afflux.commands.bench.registry import Row
from afflux.commands.bench.sizes import parse_size
from benchmarks.network import cost_tables, costs, mpi
from benchmarks.network.cases import PLANS, UCX_PLANS, Case, Plan, Setup, plans_for
from benchmarks.network.launch import RanksEnded, aggregator, run_ranks
from benchmarks.network.limits import gloo_limit_s, limit_s
from benchmarks.network.namespaces import Network, NotPermitted, missing
from benchmarks.network.rank import ALONE, BUDGET_S, CASE_LIMIT_S, ROW_MARK
from benchmarks.network.tables import text_table
from benchmarks.network.topologies import TOPOLOGIES
from benchmarks.network.workloads import SPARSE_PLANS
from benchmarks.report.figures import merge_rows, read_rows

__all__ = ["NAME", "failed", "main"]

NAME = "network"
"""Value of its rows' "bench"."""

_QUICK_BYTES = 64 << 10
_QUICK_HOSTS = 2
_MARGIN_S = 60.0
"""Beyond the limit of a case, in which the ranks end themselves: for starts."""


def run_plan(
    plan: Plan,
    quick: bool,
    budget_s: float = BUDGET_S,
    keep: Callable[[list[Row]], object] = lambda _: None,
) -> list[Row]:
    """Measure the cases of a network, those behind one that ends the ranks in new ranks.

    Args:
        plan: The network and its cases.
        quick: Only show that it works.
        budget_s: For all runs of a case.
        keep: Is given all rows so far after each case, as a later one may end the command.
    """
    setup, left = plan.setup, list(plan.cases)
    rows: list[Row] = []
    if setup.with_mpi and (reason := mpi.missing()):
        return [_about(setup, case, quick) | {"not_measured": reason} for case in left]
    contenders = ["gloo", *setup.topologies, *setup.beside]
    contenders += ["mpi"] if setup.with_mpi else []
    while left:
        known: list[Row] = []

        def on_line(line: str, known: list[Row] = known, before: list[Row] = rows) -> bool:
            if not line.startswith(ROW_MARK):
                return False
            case, (_, found) = left.pop(0), json.loads(line.removeprefix(ROW_MARK))
            known += _rows(setup, case, quick, found)
            print(f"  {case.title}: {_brief(known)}", flush=True)
            keep(before + known)
            return True

        reason = ""
        try:
            _run(setup, left, contenders, quick, budget_s, on_line)
        except RanksEnded as error:
            reason = str(error)
        rows += known
        if reason and left:
            case = left.pop(0)
            print(f"  {case.title}: {reason}", flush=True)
            rows += [
                _about(setup, case, quick) | {"topology": name, "failed": reason}
                for name in setup.topologies
            ]
    return rows


def _run(
    setup: Setup,
    cases: Sequence[Case],
    contenders: Sequence[str],
    quick: bool,
    budget_s: float,
    on_line: Any,
) -> None:
    arguments = ["--cases", json.dumps([dataclasses.asdict(case) for case in cases])]
    arguments += ["--contenders", *contenders]
    arguments += ["--quick"] if quick else ["--budget", str(budget_s)]
    arguments += ["--default-buffers"] if setup.default_buffers else []
    ports: dict[str, Any] = {}
    if setup.queue_bytes is not None:
        # Two packets: what passes at once would be a queue of its own.
        ports = {"buffer_bytes": setup.queue_bytes, "burst_bytes": 2 * (setup.mtu + 100)}
    with ExitStack() as held:
        network = held.enter_context(
            Network(
                setup.hosts,
                gbit=setup.gbit,
                aggregator_gbit=setup.aggregator_gbit,
                mtu=setup.mtu,
                loss=setup.loss,
                links=setup.links,
                offloads=setup.offloads,
                **ports,
            )
        )
        if {"udp", "udp_host"} & {*contenders}:
            address, process = held.enter_context(
                aggregator(network.aggregator, default_buffers=setup.default_buffers)
            )
            arguments += ["--aggregator", address, "--watched", process]
        if "tcp" in contenders:
            address, process = held.enter_context(aggregator(network.aggregator, "streams"))
            arguments += ["--streams", address, "--watched", process]
        run_ranks(
            network,
            setup.ranks_per_host,
            arguments,
            on_line,
            limit_s=CASE_LIMIT_S + _MARGIN_S,
            with_mpi=setup.with_mpi,
        )


def _about(setup: Setup, case: Case, quick: bool) -> Row:
    return {
        "bench": NAME,
        "setup": setup.name,
        "case": case.name,
        "title": case.title,
        "quick": quick,
        "hosts": setup.hosts,
        "ranks": setup.ranks,
        "ranks_per_host": setup.ranks_per_host,
        "cores": len(os.sched_getaffinity(0)),
        "rate_gbit": setup.gbit,
        "aggregator_rate_gbit": setup.aggregator_gbit,
        "mtu": setup.mtu,
        "loss": setup.loss,
        "links": setup.links,
        "offloads": setup.offloads,
        "queue_bytes": setup.queue_bytes,
        "default_buffers": setup.default_buffers,
        "kind": case.kind,
        "bytes": case.bytes,
        "density": case.density,
        "overlap": case.overlap,
    }


def _rows(setup: Setup, case: Case, quick: bool, found: dict[str, Any]) -> list[Row]:
    """Return a row for each topology: Afflux's figures there, and those of the others beside."""
    rows = []
    gloo = found.get("gloo", {})
    others: Row = {"gloo_limit_s": gloo_limit_s(setup, case)}
    for name in ("gloo", "mpi", *setup.beside, ALONE):
        if name in found:
            others |= _figures(name, found[name])
    for topology in setup.topologies:
        ours = found[topology]
        row = _about(setup, case, quick) | {"topology": topology, "failed": ours.get("failed", "")}
        row |= _figures("afflux", ours) | others
        row["wrong"] = row.pop("afflux_wrong", None)
        row["limit_s"] = limit_s(setup, case, topology)
        if "seconds" in ours:
            row["engine"] = ours.get("engine", "")
            if topology in ("udp", "udp_host", "tcp"):
                row["aggregator_cpu_s"] = ours.get("watched_cpu_s", 0.0)
            for name in ("gloo", "mpi", *setup.beside):
                if "seconds" in found.get(name, {}):
                    key = "ratio" if name == "gloo" else f"{name}_ratio"
                    row[key] = _ratio(found[name]["runs_s"], ours["runs_s"])
        elif "seconds" not in gloo:
            row["failed"] += f"; gloo: {gloo.get('failed', '')}"
        rows.append(row)
    return rows


def _ratio(others_s: Sequence[float], ours_s: Sequence[float]) -> float:
    """Return how many times as fast Afflux is, by runs that follow each other where that is so."""
    if len(others_s) != len(ours_s):
        return statistics.median(others_s) / statistics.median(ours_s)
    pairs = zip(others_s, ours_s, strict=True)
    return statistics.median(other / own for other, own in pairs)


def _figures(name: str, values: dict[str, Any]) -> Row:
    if "seconds" not in values:
        return {}
    return {
        f"{name}_s": values["seconds"],
        f"{name}_runs_s": values["runs_s"],
        f"{name}_cpu_s": values.get("cpu_s", 0.0),
        f"{name}_wrong": values["wrong"],
        f"{name}_calls": values["calls"],
        **{f"{name}_{key}": value for key, value in values.get("figures", {}).items()},
    }


def _brief(rows: list[Row]) -> str:
    last = [row for row in rows if row["case"] == rows[-1]["case"]]
    return ", ".join(
        f"{row['topology']} {row['ratio']:.2f}" if "ratio" in row else f"{row['topology']} –"
        for row in last
    )


def failed(row: Row) -> bool:
    """Return whether a row shows what must not be: wrong elements, or Afflux failing alone."""
    if row.get("not_measured"):
        return False
    return bool(row.get("wrong")) or "afflux_s" not in row


def _shortened(plan: Plan, most: int | None, quick: bool) -> Plan:
    """Return a plan with smaller tensors; a quick one has few hosts too."""
    limit = _QUICK_BYTES if quick else most
    if limit is None:
        return plan
    cases = [
        case
        if case.bytes <= limit
        else dataclasses.replace(case, bytes=limit, title=_title(case, limit))
        for case in plan.cases
    ]
    setup = plan.setup
    if quick:
        setup = dataclasses.replace(setup, hosts=min(setup.hosts, _QUICK_HOSTS))
    return Plan(setup, tuple(cases))


def _title(case: Case, size: int) -> str:
    """Return the title of a case of another size."""
    amount = f"{size / 2**20:g} MiB" if size >= 1 << 20 else f"{size} bytes"
    return re.sub(r"[\d.]+[- ]MiB|1 MB", amount, case.title)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    # argparse formats help texts.
    known = (*PLANS, *SPARSE_PLANS, *UCX_PLANS)
    setups = ", ".join([*(plan.setup.name for plan in known), costs.NAME]).replace("%", "%%")
    parser = argparse.ArgumentParser(prog="python -m benchmarks.network", description=__doc__)
    parser.add_argument(
        "--suite",
        choices=("network", "sparse", "ucx"),
        default="network",
        help="what to measure unless --only says it, and the name of the file (%(default)s)",
    )
    parser.add_argument("--output", type=Path, help="file (build/bench/SUITE.json)")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="SETUP[:CASE]",
        help=f"what to measure, of {setups}",
    )  # fmt: skip
    parser.add_argument(
        "--topologies", nargs="+", choices=list(TOPOLOGIES), help="who sums (auto udp)"
    )
    parser.add_argument(
        "--most", type=parse_size, metavar="SIZE", help="no larger tensors, such as 10M"
    )
    parser.add_argument(
        "--budget", type=float, default=BUDGET_S, metavar="SECONDS",
        help="for all runs of a case; each contender has one at least (%(default)g)",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="only show that it works")
    arguments = parser.parse_args(argv)
    try:
        plans, with_costs = _asked_for(arguments.only, arguments.suite)
    except ValueError as error:
        parser.error(str(error))
    output = arguments.output or Path(f"build/bench/{arguments.suite}.json")
    if reason := missing():
        print(f"python -m benchmarks.network: {reason}", file=sys.stderr)
        return 1
    rows: list[Row] = []
    others: list[Row] = []
    try:
        with terminated_as_interrupted():
            for plan in plans:
                shortened = _shortened(plan, arguments.most, arguments.quick)
                if arguments.topologies:
                    topologies = tuple(arguments.topologies)
                    setup = dataclasses.replace(shortened.setup, topologies=topologies)
                    shortened = Plan(setup, shortened.cases)
                print(f"{plan.setup.title}, times as fast as Gloo:", flush=True)

                def keep(found: list[Row]) -> None:
                    # Kept even if what follows fails.
                    merge_rows(output, [NAME], _kept(output, found))

                found = run_plan(shortened, arguments.quick, arguments.budget, keep)
                keep(found)
                rows += found
            others = _measure_costs(arguments.quick, output) if with_costs else []
    except NotPermitted as error:
        print(f"python -m benchmarks.network: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    said = [
        *([text_table(rows, (*PLANS, *SPARSE_PLANS, *UCX_PLANS))] if rows else []),
        *([cost_tables.text_tables(others)] if others else []),
    ]
    print("\n" + "\n\n".join([*said, f"written to {output}"]))
    return 1 if any(map(failed, rows)) else 0


def _asked_for(only: Sequence[str], suite: str = "network") -> tuple[list[Plan], bool]:
    """Return what is to be measured: networks, and whether the costs of bytes.

    Args:
        only: Names of parts, of either suite.
        suite: All of whose parts are measured if there are none.

    Raises:
        ValueError: There is no such part.
    """
    if not only and suite == "sparse":
        return list(SPARSE_PLANS), False
    if not only and suite == "ucx":
        return list(UCX_PLANS), False
    if not only:
        return list(PLANS), True
    plans = [each for each in only if each.partition(":")[0] != costs.NAME]
    with_costs = len(plans) < len(only)
    if with_costs and costs.NAME not in only:
        raise ValueError(f"{costs.NAME} has no cases of its own")
    return plans_for(tuple(plans), (*PLANS, *SPARSE_PLANS, *UCX_PLANS)) if plans else [], with_costs


def _measure_costs(quick: bool, output: Path) -> list[Row]:
    """Measure what a byte costs; keep each row as soon as it is known."""
    found: list[Row] = []
    print("What a byte costs:", flush=True)
    for row in costs.measure(quick):
        found.append(row)
        print(f"  {costs.brief(row)}", flush=True)
        old = [
            each
            for each in read_rows(output)
            if each["bench"] == costs.NAME and each["case"] != row["case"]
        ]
        merge_rows(output, [costs.NAME], [*old, row])
    return found


def _kept(path: Path, rows: list[Row]) -> list[Row]:
    """Return the rows of the file that are not measured again, and the new ones."""
    new = {_what(row) for row in rows}
    old = [row for row in read_rows(path) if row["bench"] == NAME]
    return [row for row in old if _what(row) not in new] + rows


def _what(row: Row) -> tuple[str, str, str]:
    return row["setup"], row["case"], row.get("topology", "")


if __name__ == "__main__":
    sys.exit(main())
