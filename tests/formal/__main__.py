"""`python -m tests.formal`: all proofs, their cover statements, and the bugs that they find.

Writes `build/formal/results.json` and one folder for each run; ends with 1 if anything is not as
it should be: a proof that does not pass, a cover statement that is not reached, a bug that is not
found.
"""

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.formal import matching, results
from tests.formal.catalogue import PROOFS
from tests.formal.sby import Outcome, Proof, SoughtBug, check


@dataclass(frozen=True)
class Run:
    """One of a proof's runs: the proof itself, its cover statements, or one of its bugs."""

    proof: Proof
    bug: SoughtBug | None = None
    cover: bool = False

    def __str__(self) -> str:
        what = f"finds: {self.bug.name}" if self.bug else "is not vacuous" if self.cover else ""
        return f"{self.proof.name}{': ' if what else ''}{what}"

    def carry_out(self) -> tuple[bool, Outcome]:
        """Return whether it came out as it should, and how."""
        outcome = check(self.proof, self.bug, cover=self.cover)
        return outcome.status == ("FAIL" if self.bug else "PASS"), outcome


def runs_of(proof: Proof) -> list[Run]:
    """All runs of a proof, the proof first."""
    covers = [Run(proof, cover=True)] if proof.cover else []
    return [Run(proof), *covers, *(Run(proof, bug) for bug in proof.bugs)]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.formal",
        description="Runs all proofs, their cover statements, and the bugs that they must find.",
    )
    parser.add_argument("-j", type=int, default=2, help="runs at a time (2)")
    parser.add_argument("-k", default="", help="only runs whose name has this in it")
    parser.add_argument("--quick", action="store_true", help="only those of make test")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write the tables in FILE again")
    arguments = parser.parse_args()
    if arguments.table:
        results.write_table(arguments.table, PROOFS)
        matching.write_table(arguments.table, matching.uses_of(PROOFS, arguments.j))
        return 0
    chosen = [proof for proof in PROOFS if proof.quick or not arguments.quick]
    every = [run for proof in chosen for run in runs_of(proof)]
    runs = [run for run in every if arguments.k in str(run)]
    wrong = 0
    with ThreadPoolExecutor(arguments.j) as pool:
        for run, (right, outcome) in zip(runs, pool.map(Run.carry_out, runs), strict=True):
            wrong += not right
            print(f"{'ok   ' if right else 'WRONG'} {run}: {outcome}", flush=True)
            results.keep(run.proof, run.bug, run.cover, right, outcome)
    if len(chosen) == len(PROOFS) and len(runs) == len(every):
        # In the netlists of the proofs that have just been carried out.
        for problem in matching.unmatched(matching.uses_of(PROOFS, arguments.j)):
            wrong += 1
            print(f"WRONG {problem}", flush=True)
    print(f"{len(runs)} runs, {wrong} not as they should be", file=sys.stderr)
    return 1 if wrong or not runs else 0


if __name__ == "__main__":
    sys.exit(main())
