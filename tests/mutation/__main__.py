"""`python -m tests.mutation`: mutates engine and node, and reports what the checks do not notice.

Writes `build/mutation.json` and prints a table. Verdicts are kept as they come, in a file beside
each netlist, so that a run that was cut off goes on where it was.
"""

import argparse
import hashlib
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from afflux_sim.rtl.compile.cache import default_folder
from afflux_sim.rtl.compile.toolchain import find_toolchain
from afflux_sim.rtl.compile.verilator import ENGINE, NODE, build_library
from tests.checks.engine_checks import BUILDS
from tests.checks.node_checks import node_parameters
from tests.mutation.battery import (
    Trial,
    battery_of_node,
    battery_of_options,
    full_battery,
    option_parameters,
    parameters,
)
from tests.mutation.flip_checks import draw_flips
from tests.mutation.flips import read_netlist
from tests.mutation.judge import Bench, EngineBench, Judge, NodeBench, PortedBench, Verdict
from tests.mutation.mutants import Mutant, Netlist
from tests.mutation.optional import optional_places
from tests.mutation.sizes import battery_of_sizes, draw_indices, shipped_parameters
from tests.scenarios.director import Build
from tests.support.checkout import BUILD as BUILD_FOLDER
from tests.support.ported.ported_engine import build_ported

WANTED = 0.95
ENGINES, NODES, OPTIONS, SIZES = "engine", "node", "options", "sizes"
FOLDERS = {ENGINES: "", NODES: "node", OPTIONS: "options", SIZES: "sizes"}
"""The text before the width in the name of a subject's folder."""


def say(text: str) -> None:
    """Print at once, so that a run can be watched."""
    print(text, flush=True)


@dataclass(frozen=True)
class Task:
    """The mutants to judge, and how.

    Attributes:
        subject: `engine`, `node`, `options` or `sizes`: the node's mutants are those of what is
            around its engine, those of options are of what only an engine that is built with them
            has, those of sizes are of addresses and indices in builds that are shipped.
        bus_bits: Width.
        count: Mutants.
        seed: Of the draw.
        jobs: Processes at a time.
        seconds: After which no more mutants are begun.
        checks: Names of those to judge by; none stands for all.
        again: Judge those anew that survived the last time.
    """

    subject: str
    bus_bits: int
    count: int
    seed: int
    jobs: int
    seconds: float
    checks: Sequence[str]
    again: bool


def run(task: Task) -> list[dict[str, Any]]:
    """Judge mutants of one subject; return those that were judged, with their verdicts."""
    bus_bits = task.bus_bits
    folder = BUILD_FOLDER / "mutation" / f"{FOLDERS[task.subject]}{bus_bits}"
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    flips: list[Mutant] = []
    if task.subject == NODES:
        netlist = Netlist(folder, node_parameters(bus_bits))
        mutants = netlist.draw(task.count, task.seed)
    elif task.subject == ENGINES:
        netlist = Netlist(folder, parameters(bus_bits))
        mutants = netlist.draw(task.count, task.seed)
    elif task.subject == SIZES:
        netlist = Netlist(folder, shipped_parameters(bus_bits))
        mutants = draw_indices(netlist, read_netlist(folder), task.count, task.seed)
    else:
        netlist = Netlist(folder, option_parameters(bus_bits))
        text, ram = ((folder / each).read_text("utf-8") for each in ("netlist.il", "ram.v"))
        mutants = netlist.draw_at(optional_places(text, ram, task.seed), task.count, task.seed)
    if task.subject in (ENGINES, OPTIONS):
        flips = draw_flips(netlist, read_netlist(folder))
    verilog = netlist.verilog(mutants, flips)
    if task.subject == OPTIONS:
        library = build_ported(option_parameters(bus_bits), verilog)
    else:
        model = NODE if task.subject == NODES else ENGINE
        library = build_library(find_toolchain(), default_folder(), verilog, bus_bits, model=model)
    name = f"{task.subject}, {bus_bits} bits"
    say(f"{name}: {len(mutants)} mutants, built in {time.monotonic() - begun:.0f} s")
    verdicts = Verdicts(folder / "verdicts.jsonl", verilog)
    known = {
        mutant.number: verdict
        for mutant in mutants
        if (verdict := verdicts.known.get(mutant.command)) and (verdict.caught or not task.again)
    }
    left = [mutant.number for mutant in mutants if mutant.number not in known]
    # A sample of all stages if there is no time for all.
    random.Random(task.seed).shuffle(left)
    if left and task.seconds > 0:
        bench, whole = checks_of(task.subject, bus_bits, flips)
        battery = [trial for trial in whole if not task.checks or trial.name in task.checks]
        begun = time.monotonic()
        judge = Judge(library, battery, bench)
        itself = judge.judge(0)
        if itself.caught:
            raise AssertionError(f"the {task.subject} does not repeat its answers: {itself}")
        say(f"  itself it passes, {time.monotonic() - begun:.0f} s; cycles: {judge.cycles}")
        begun = time.monotonic()
        until = begun + task.seconds
        for number, verdict in judge.judge_all(left, task.jobs, until):
            known[number] = verdict
            verdicts.keep(mutants[number - 1].command, verdict)
            if not verdict.caught:
                say(f"  survives: {mutants[number - 1]}")
            elif len(known) % 50 == 0:
                say(f"  {len(known)} judged, {time.monotonic() - begun:.0f} s")
        say(f"  judged in {time.monotonic() - begun:.0f} s")
    say(f"  {len(known)} of {len(mutants)} judged")
    return [
        record(task, mutant, known[mutant.number]) for mutant in mutants if mutant.number in known
    ]


def checks_of(subject: str, bus_bits: int, flips: Sequence[Mutant]) -> tuple[Bench, list[Trial]]:
    """Return how a subject's mutants are opened, and all checks of them."""
    if subject == NODES:
        return NodeBench(), battery_of_node(bus_bits)
    if subject == SIZES:
        return EngineBench(), battery_of_sizes(shipped_parameters(bus_bits))
    if subject == OPTIONS:
        return PortedBench(), battery_of_options(bus_bits, flips)
    return EngineBench(), full_battery(bus_bits, flips)


class Verdicts:
    """Verdicts on the mutants of one netlist, kept in a file, a line for each.

    Args:
        path: The file.
        verilog: The judged Verilog: verdicts on another are not taken.
    """

    def __init__(self, path: Path, verilog: str) -> None:
        self._path = path
        self._of = hashlib.sha256(verilog.encode()).hexdigest()
        self.known: dict[str, Verdict] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                if entry["of"] == self._of:
                    self.known[entry["command"]] = Verdict(**entry["verdict"])

    def keep(self, command: str, verdict: Verdict) -> None:
        """Append a verdict on the mutant that `command` makes."""
        entry = {"of": self._of, "command": command, "verdict": asdict(verdict)}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def record(task: Task, mutant: Mutant, verdict: Verdict) -> dict[str, Any]:
    """Return what the report holds of a mutant."""
    part = {"subject": task.subject, "bus_bits": task.bus_bits}
    return {**part, **asdict(mutant), "verdict": asdict(verdict)}


def summary(records: list[dict[str, Any]], build: dict[int, Build], seed: int) -> dict[str, Any]:
    """Return the whole report."""
    total = Counter(stage_name(entry) for entry in records)
    caught = Counter(stage_name(entry) for entry in records if entry["verdict"]["caught"])
    by = Counter(entry["verdict"]["trial"] for entry in records if entry["verdict"]["caught"])
    how = Counter(entry["verdict"]["how"] for entry in records if entry["verdict"]["caught"])
    return {
        "build": build,
        "seed": seed,
        "mutants": total.total(),
        "caught": caught.total(),
        "score": round(caught.total() / max(1, total.total()), 4),
        "stages": {
            stage: {"mutants": total[stage], "caught": caught[stage]} for stage in sorted(total)
        },
        "caught_by": dict(by.most_common()),
        "caught_how": dict(how.most_common()),
        "survivors": [entry for entry in records if not entry["verdict"]["caught"]],
        "all": [
            {
                "subject": entry["subject"],
                "bus_bits": entry["bus_bits"],
                "number": entry["number"],
                "command": entry["command"],
                "trial": entry["verdict"]["trial"],
                "how": entry["verdict"]["how"],
            }
            for entry in records
        ],
    }


def stage_name(entry: dict[str, Any]) -> str:
    """Return the part that a mutant lies in; those of the node stand under its name."""
    stage = str(entry["stage"]).partition("$")[0]
    within = entry["subject"] == NODES and stage != NODES
    return f"node.{stage}" if within else stage


def print_table(report: dict[str, Any]) -> None:
    """Print the report's figures for people."""
    say(f"\n{'stage':<20}{'mutants':>8}{'caught':>8}{'share':>8}")
    for stage, counts in report["stages"].items():
        share = counts["caught"] / counts["mutants"]
        say(f"{stage:<20}{counts['mutants']:>8}{counts['caught']:>8}{share:>8.1%}")
    say(f"{'all':<20}{report['mutants']:>8}{report['caught']:>8}{report['score']:>8.1%}")
    say("\ncaught by")
    for trial, number in report["caught_by"].items():
        say(f"{number:>6}  {trial or 'no check: hang or crash of the process'}")


def main(arguments: list[str] | None = None) -> int:
    """Command line; the exit status says whether the score is as wanted."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument(
        "--mutants", type=int, default=300, help="for each subject and width (%(default)s)"
    )
    parser.add_argument("--subjects", nargs="+", default=[ENGINES, NODES], choices=list(FOLDERS))
    parser.add_argument(
        "--minutes", type=float, default=1e9, help="of judging, for each subject and width"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bus-bits", type=int, nargs="+", default=[512, 32])
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument(
        "--again", action="store_true", help="judge only those that survived the last time"
    )
    parser.add_argument(
        "--checks", nargs="+", default=[], help="judge only by these, such as those added since"
    )
    parser.add_argument("-o", "--output", type=Path, default=BUILD_FOLDER / "mutation.json")
    options = parser.parse_args(arguments)
    records = []
    for subject in options.subjects:
        for bus_bits in options.bus_bits:
            task = Task(
                subject=subject,
                bus_bits=bus_bits,
                count=options.mutants,
                seed=options.seed,
                jobs=options.jobs,
                seconds=60 * options.minutes,
                checks=options.checks,
                again=options.again,
            )
            records += run(task)
    report = summary(records, BUILDS, options.seed)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print_table(report)
    say(f"\n{options.output}")
    return 0 if report["score"] >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
