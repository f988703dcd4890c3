"""`python -m benchmarks.network.to_loss`: trainings between hosts, until they reach a loss.

The hosts are namespaces of this machine. Its cores are shared by all ranks and the aggregator, so
computing takes longer than on four hosts; sending does not. Into build/bench/convergence.json,
beside what trainings with schemes come to (`benchmarks.training.schemes`).
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from afflux.commands.bench.interruption import terminated_as_interrupted
from afflux.commands.bench.registry import Row
from benchmarks.network.launch import RanksEnded, aggregator, run_ranks
from benchmarks.network.namespaces import Network, NotPermitted, missing
from benchmarks.report.figures import merge_rows, read_rows

__all__ = ["NAME", "main", "measure"]

NAME = "to_loss"
"""Value of its rows' "bench"."""

_HOSTS = 4
_LIMIT_S = 300.0
_MARK = "to loss: "
"""Begins a rank's line of a training that is over."""

_AGGREGATOR_TIMES = 10.0
"""The rate of the aggregator's port, by that of a host."""

_TASKS = ("digits", "lstm", "bag")
_CONTENDERS = ("gloo", "auto", "udp", "udp/topk:density=0.01", "udp/gtopk:density=0.01", "udp/int8")


def measure(
    task: str,
    gbit: float,
    contenders: Sequence[str],
    steps: int | None,
    keep: Callable[[Row], None],
    hosts: int = _HOSTS,
) -> None:
    """Train, each contender after the other, in the same ranks.

    Args:
        task: Of `benchmarks.training.tasks`.
        gbit: Rate of the hosts' ports, both ways.
        contenders: The averaging backends: "gloo", "auto" if no address is given, "udp" with an
            aggregator; after a stroke the words of a scheme.
        steps: At most; the task's if None.
        keep: Called with each row as it is known.
        hosts: How many, with one rank each.

    Raises:
        NotPermitted: There can be no such network here.
        RanksEnded: The ranks did not end well.
    """

    def on_line(line: str) -> bool:
        if not line.startswith(_MARK):
            return False
        about = {"bench": NAME, "task": task, "rate_gbit": gbit, "hosts": hosts}
        keep(about | json.loads(line.removeprefix(_MARK)))
        return True

    with ExitStack() as held:
        network = held.enter_context(
            Network(hosts, gbit=gbit, aggregator_gbit=_AGGREGATOR_TIMES * gbit)
        )
        address, _ = held.enter_context(aggregator(network.aggregator))
        arguments = ["--task", task, "--aggregator", address, "--contenders", *contenders]
        arguments += ["--steps", str(steps)] if steps else []
        program = ["-m", "benchmarks.training.to_loss"]
        run_ranks(network, 1, arguments, on_line, limit_s=_LIMIT_S, program=program)


def _brief(row: Row) -> str:
    text = f"{row['task']}, {row['rate_gbit']:g} Gbit/s, {row['way']} {row['scheme']}: "
    if row["failed"]:
        return text + row["failed"]
    end = f"{row['loss']:.4f} after {row['steps']} steps, {row['seconds']:.1f} s"
    return f"{text}{end}, {1e3 * row['step_s']:.0f} ms each ({1e3 * row['cpu_s']:.0f} ms CPU)"


def _what(row: Row) -> tuple[object, ...]:
    return tuple(row[key] for key in ("task", "rate_gbit", "way", "scheme"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the trainings; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.network.to_loss",
                                     description=__doc__)  # fmt: skip
    parser.add_argument(
        "--output", type=Path, default=Path("build/bench/convergence.json"),
        help="file (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--tasks", nargs="+", default=_TASKS, help="(%(default)s)")
    parser.add_argument("--gbit", nargs="+", type=float, default=[1.0, 0.1])
    parser.add_argument("--contenders", nargs="+", default=_CONTENDERS,
                        help="gloo, auto or udp, and behind / a scheme")  # fmt: skip
    parser.add_argument("--steps", type=int, help="at most")
    given = parser.parse_args(argv)
    if reason := missing():
        print(f"python -m benchmarks.network.to_loss: {reason}", file=sys.stderr)
        return 1

    def keep(row: Row) -> None:
        print(f"  {_brief(row)}", flush=True)
        old = [each for each in read_rows(given.output) if each["bench"] == NAME]
        merge_rows(
            given.output, [NAME], [each for each in old if _what(each) != _what(row)] + [row]
        )

    try:
        with terminated_as_interrupted():
            for gbit in given.gbit:
                for task in given.tasks:
                    measure(task, gbit, given.contenders, given.steps, keep)
    except KeyboardInterrupt:
        return 130
    except (NotPermitted, RanksEnded) as error:
        print(f"python -m benchmarks.network.to_loss: {error}", file=sys.stderr)
        return 1
    print(f"written to {given.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
