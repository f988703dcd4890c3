"""`python -m tests.nightly [TARGET ...]`: long checks one after another, and a table at the end.

Each is a target of `make`, with its output in `build/nightly/TARGET.log`. The next one starts
whether or not the one before has failed. Ends with 1 if any has failed, or if Ctrl-C came first.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.support.checkout import BUILD, ROOT

TARGETS = (
    "lint",
    "types",
    "native-test",
    "test",
    "test-long",
    "second-simulator",
    "floods",
    "fuzz",
    "conformance",
    "chaos",
    "soak",
    "formal",
    "mutation-native",
    "mutation",
    "coverage",
    "wheels",
    "compat",
)
"""Quick ones first; those that fetch torch last."""

_LAST_LINES = 10


@dataclass(frozen=True)
class Row:
    """How one target ended.

    Attributes:
        target: Its name.
        seconds: Its time by the clock.
        outcome: "passed", "FAILED" or "interrupted".
        log: The file with its output.
    """

    target: str
    seconds: float
    outcome: str
    log: Path

    def __str__(self) -> str:
        return f"{self.target:18}{self.seconds:9.0f}  {self.outcome:12}{self.log}"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.nightly", description="Runs long checks one after another."
    )
    parser.add_argument("targets", nargs="*", default=TARGETS, metavar="TARGET")
    parser.add_argument("--directory", type=Path, default=ROOT, help="of the Makefile")
    parser.add_argument("--logs", type=Path, default=BUILD / "nightly", help="a folder")
    arguments = parser.parse_args()
    arguments.logs.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for target in arguments.targets:
        print(f"{time.strftime('%H:%M:%S')} {target} ...", flush=True)
        rows.append(_run(target, arguments.directory, arguments.logs / f"{target}.log"))
        if rows[-1].outcome == "interrupted":
            break
    print(_table(rows, arguments.targets[len(rows) :]))
    return int(any(row.outcome != "passed" for row in rows))


def _run(target: str, directory: Path, log: Path) -> Row:
    start_s = time.monotonic()
    outcome = "interrupted"
    command = ["make", "--no-print-directory", "-C", str(directory), target]
    with log.open("w", encoding="utf-8") as output:
        try:
            status = subprocess.call(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
            outcome = "FAILED" if status else "passed"
        except KeyboardInterrupt:
            # The terminal has sent it to make and its children, too.
            print("interrupted", flush=True)
    if outcome == "FAILED":
        said = log.read_text(encoding="utf-8", errors="replace").splitlines()
        print(*(f"    {line}" for line in said[-_LAST_LINES:]), sep="\n", flush=True)
    return Row(target, time.monotonic() - start_s, outcome, log)


def _table(rows: list[Row], not_run: Iterable[str]) -> str:
    lines = [f"\n{'target':18}{'seconds':>9}  {'outcome':12}log"]
    lines += map(str, rows)
    lines += [f"{target:18}{'-':>9}  not run" for target in not_run]
    failed = sum(row.outcome != "passed" for row in rows)
    lines.append(f"{len(rows) - failed} passed, {failed} failed")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
