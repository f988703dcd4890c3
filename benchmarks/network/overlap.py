"""`python -m benchmarks.network.overlap`: steps of training with and without priorities.

Four hosts at 1 Gbit/s train a network that computes for as long as it is told (see
`benchmarks.network.overlap_rank`, where it is described: the compute is synthetic). A step's
*exposed* communication is its time beyond the same step without communication. The rows go into
build/bench/overlap.json, and a timeline of each way that has one into build/bench/timelines.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from afflux.commands.bench.interruption import terminated_as_interrupted
from afflux.commands.bench.registry import Row
from benchmarks.network.launch import RanksEnded, aggregator, run_ranks
from benchmarks.network.namespaces import Network, NotPermitted, missing
from benchmarks.network.overlap_rank import CONTENDERS, ROW_MARK
from benchmarks.report.figures import merge_rows

__all__ = ["NAME", "TITLES", "as_text", "main", "rows_of", "run"]

NAME = "overlap"
"""Value of its rows' "bench"."""

TITLES = {
    "alone": "no communication",
    "gloo": "DDP over Gloo",
    "own": "DDP over Afflux",
    "arrival": "messages as they come, steps deferred",
    "priorities": "messages by priority, steps deferred",
}

_HOSTS = 4
_AGGREGATOR_TIMES = 10.0
"""Rate of the aggregator's port beside the hosts'."""
_LIMIT_S = 120.0

_WANTED_EXPOSED = 0.6
_WANTED_STEP = 1.3


def run(given: argparse.Namespace) -> dict[str, Any]:
    """Measure; return what the ranks have found.

    Raises:
        RanksEnded: They did not end well.
        NotPermitted: No networks can be made here.
    """
    arguments = ["--shrink", str(given.shrink), "--forward", str(given.forward)]
    arguments += ["--message", str(given.message), "--steps", str(given.steps)]
    arguments += ["--repeats", str(given.repeats), "--contenders", *CONTENDERS]
    if given.timelines is not None:
        arguments += ["--timelines", str(given.timelines)]
    found: dict[str, Any] = {}

    def on_line(line: str) -> bool:
        if not line.startswith(ROW_MARK):
            return False
        found.update(json.loads(line.removeprefix(ROW_MARK)))
        return True

    with ExitStack() as held:
        network = held.enter_context(
            Network(given.hosts, gbit=given.gbit, aggregator_gbit=_AGGREGATOR_TIMES * given.gbit)
        )
        address, _ = held.enter_context(aggregator(network.aggregator))
        program = ["-m", "benchmarks.network.overlap_rank"]
        arguments += ["--aggregator", address]
        run_ranks(network, 1, arguments, on_line, limit_s=_LIMIT_S, program=program)
    return found


def rows_of(found: dict[str, Any], given: argparse.Namespace) -> list[Row]:
    """Return a row for each contender."""
    medians = {name: statistics.median(found[name]["runs_s"]) for name in CONTENDERS}
    exposed = {name: medians[name] - medians["alone"] for name in CONTENDERS}
    rows = []
    for name in CONTENDERS:
        row: Row = {
            "bench": NAME,
            "case": name,
            "title": TITLES[name],
            "quick": given.quick,
            "synthetic": "layers sleep; gradients are random",
            "hosts": given.hosts,
            "rate_gbit": given.gbit,
            "aggregator_rate_gbit": _AGGREGATOR_TIMES * given.gbit,
            "bytes": found["bytes"],
            "message_bytes": given.message,
            "forward_s": given.forward,
            "step_s": medians[name],
            "runs_s": found[name]["runs_s"],
            "exposed_s": exposed[name],
            "wrong": found[name]["wrong"],
            "times_gloo": medians["gloo"] / medians[name],
            "exposed_of_own": exposed[name] / exposed["own"] if exposed["own"] > 0 else None,
            "exposed_of_arrival": (
                exposed[name] / exposed["arrival"] if exposed["arrival"] > 0 else None
            ),
        }
        rows.append(row | {"statistics": found[name].get("statistics")})
    return rows


def as_text(rows: Sequence[Row]) -> str:
    """Return the table of the rows, and the table of layers with priorities."""
    lines = [
        f"{rows[0]['hosts']} hosts at {rows[0]['rate_gbit']:g} Gbit/s, "
        f"{rows[0]['bytes'] / 1e6:.1f} MB of gradients, "
        f"{1e3 * 3 * rows[0]['forward_s']:.0f} ms of synthetic compute",
        "",
        " step ms  exposed ms  of own  x Gloo",
    ]
    for row in rows:
        share = row["exposed_of_own"]
        lines.append(
            f"{1e3 * row['step_s']:8.1f} {1e3 * row['exposed_s']:11.1f} "
            f"{'–' if share is None else f'{share:.2f}':>7} {row['times_gloo']:7.2f}  "
            f"{row['title']}{'  WRONG' if row['wrong'] else ''}"
        )
    lines.append(f"wanted: exposed {_WANTED_EXPOSED} of own at most, {_WANTED_STEP} x Gloo")
    last = rows[-1]["statistics"]
    return "\n".join([*lines, "", last["layers"]] if last else lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.network.overlap", description=__doc__
    )
    parser.add_argument(
        "--output", type=Path, default=Path("build/bench/overlap.json"), help="file (%(default)s)"
    )
    parser.add_argument(
        "--timelines", type=Path, default=Path("build/bench/timelines"), help="folder (%(default)s)"
    )
    parser.add_argument("--hosts", type=int, default=_HOSTS)
    parser.add_argument("--gbit", type=float, default=1.0, help="of each host (%(default)g)")
    parser.add_argument(
        "--shrink", type=int, default=16, help="VGG-16's parameters, divided by this (%(default)s)"
    )
    parser.add_argument(
        "--forward", type=float, default=0.1, metavar="SECONDS",
        help="of all layers; the backward pass takes twice as long (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--message", type=int, default=2 << 20, help="bytes (%(default)s)")
    parser.add_argument("--steps", type=int, default=5, help="of a run (%(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="only show that it works")
    given = parser.parse_args(argv)
    if given.quick:
        given.hosts, given.shrink, given.forward, given.steps, given.repeats = 2, 4096, 0.01, 2, 1
    if reason := missing():
        print(f"python -m benchmarks.network.overlap: {reason}", file=sys.stderr)
        return 1
    try:
        with terminated_as_interrupted():
            rows = rows_of(run(given), given)
    except (NotPermitted, RanksEnded) as error:
        print(f"python -m benchmarks.network.overlap: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    merge_rows(given.output, [NAME], rows)
    print(f"{as_text(rows)}\n\nwritten to {given.output}")
    return 1 if any(row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
