"""`python -m tests.mutation`: mutates the engine and reports what the checks do not notice.

Writes `build/mutation.json` and prints a table.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from afflux_sim.rtl.build.cache import default_folder
from afflux_sim.rtl.build.toolchain import find_toolchain
from afflux_sim.rtl.build.verilator import build_library
from tests.checks.engine_checks import BUILDS
from tests.mutation.battery import full_battery, parameters
from tests.mutation.judge import Judge, Verdict
from tests.mutation.mutants import Mutant, Netlist
from tests.scenarios.director import Build
from tests.support.checkout import BUILD as BUILD_FOLDER

WANTED = 0.9


def say(text: str) -> None:
    """Print at once, so that a run can be watched."""
    print(text, flush=True)


def run(
    bus_bits: int,
    count: int,
    seed: int,
    jobs: int,
    before: dict[str, Verdict] | None,
    checks: Sequence[str],
) -> list[dict[str, Any]]:
    """Judge mutants of the engine of one width; return each with its verdict.

    `before` holds verdicts by the mutants' commands; those who are caught there stay so.
    `checks` are names of those to judge by; none stands for all.
    """
    folder = BUILD_FOLDER / "mutation" / str(bus_bits)
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    netlist = Netlist(folder, parameters(bus_bits))
    mutants = netlist.draw(count, seed)
    verilog = netlist.verilog(mutants)
    library = build_library(find_toolchain(), default_folder(), verilog, bus_bits)
    say(f"{bus_bits} bits: {len(mutants)} mutants, built in {time.monotonic() - begun:.0f} s")
    begun = time.monotonic()
    battery = [trial for trial in full_battery(bus_bits) if not checks or trial.name in checks]
    judge = Judge(library, battery)
    itself = judge.judge(0)
    if itself.caught:
        raise AssertionError(f"the engine does not repeat its answers: {itself}")
    say(f"  the engine itself passes, {time.monotonic() - begun:.0f} s; cycles: {judge.cycles}")
    begun = time.monotonic()
    known = before or {}
    verdicts = {m.number: known[m.command] for m in mutants if m.command in known}
    left = [mutant.number for mutant in mutants if mutant.number not in verdicts]
    for number, verdict in judge.judge_all(left, jobs):
        verdicts[number] = verdict
        if not verdict.caught:
            say(f"  survives: {mutants[number - 1]}")
        elif len(verdicts) % 50 == 0:
            say(f"  {len(verdicts)} judged, {time.monotonic() - begun:.0f} s")
    say(f"  judged in {time.monotonic() - begun:.0f} s")
    return [record(bus_bits, mutant, verdicts[mutant.number]) for mutant in mutants]


def record(bus_bits: int, mutant: Mutant, verdict: Verdict) -> dict[str, Any]:
    """Return what the report holds of a mutant."""
    return {"bus_bits": bus_bits, **asdict(mutant), "verdict": asdict(verdict)}


def caught_before(path: Path, bus_bits: int) -> dict[str, Verdict]:
    """Return the verdicts of an earlier report on those that were caught, by command."""
    entries = json.loads(path.read_text(encoding="utf-8"))["all"]
    return {
        entry["command"]: Verdict(True, entry["trial"], entry["how"], "", 0.0)
        for entry in entries
        if entry["bus_bits"] == bus_bits and entry["how"]
    }


def summary(records: list[dict[str, Any]], build: dict[int, Build], seed: int) -> dict[str, Any]:
    """Return the whole report."""
    total = Counter(entry["stage"] for entry in records)
    caught = Counter(entry["stage"] for entry in records if entry["verdict"]["caught"])
    by = Counter(entry["verdict"]["trial"] for entry in records if entry["verdict"]["caught"])
    how = Counter(entry["verdict"]["how"] for entry in records if entry["verdict"]["caught"])
    return {
        "build": build,
        "seed": seed,
        "mutants": total.total(),
        "caught": caught.total(),
        "score": round(caught.total() / total.total(), 4),
        "stages": {
            stage: {"mutants": total[stage], "caught": caught[stage]} for stage in sorted(total)
        },
        "caught_by": dict(by.most_common()),
        "caught_how": dict(how.most_common()),
        "survivors": [entry for entry in records if not entry["verdict"]["caught"]],
        "all": [
            {
                "bus_bits": entry["bus_bits"],
                "number": entry["number"],
                "command": entry["command"],
                "trial": entry["verdict"]["trial"],
                "how": entry["verdict"]["how"],
            }
            for entry in records
        ],
    }


def print_table(report: dict[str, Any]) -> None:
    """Print the report's figures for people."""
    say(f"\n{'stage':<16}{'mutants':>8}{'caught':>8}{'share':>8}")
    for stage, counts in report["stages"].items():
        share = counts["caught"] / counts["mutants"]
        say(f"{stage:<16}{counts['mutants']:>8}{counts['caught']:>8}{share:>8.1%}")
    say(f"{'all':<16}{report['mutants']:>8}{report['caught']:>8}{report['score']:>8.1%}")
    say("\ncaught by")
    for trial, number in report["caught_by"].items():
        say(f"{number:>6}  {trial or 'no check: hang or crash of the process'}")


def main(arguments: list[str] | None = None) -> int:
    """Command line; the exit status says whether the score is as wanted."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--mutants", type=int, default=270, help="for each width (%(default)s)")
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
    for bus_bits in options.bus_bits:
        before = caught_before(options.output, bus_bits) if options.again else None
        records += run(
            bus_bits, options.mutants, options.seed, options.jobs, before, options.checks
        )
    report = summary(records, BUILDS, options.seed)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print_table(report)
    say(f"\n{options.output}")
    return 0 if report["score"] >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
