"""Runs some of PyTorch's tests of backends, one after the other, and writes down how each ended.

`python -m tests.conformance.suite_worker RESULTS TEST ...`, with BACKEND and WORLD_SIZE in the
environment; without a test, it writes down the names of all. One line of JSON for each.
"""

import json
import multiprocessing
import os
import sys
import time
import unittest
from pathlib import Path

__all__ = ["main"]

_TEXT_CHARACTERS = 6000


def _result(case: unittest.TestCase) -> tuple[str, str]:
    result = unittest.TestResult()
    case.run(result)
    if problems := result.errors + result.failures:
        return "failed", problems[0][1][-_TEXT_CHARACTERS:]
    if result.skipped:
        return "skipped", result.skipped[0][1]
    return "ok", ""


def main(results: Path, names: list[str]) -> None:
    """Run tests by name."""
    # Before any process is forked; the server itself imports them all.
    multiprocessing.get_context("forkserver").set_forkserver_preload(
        ["tests.conformance.suite_case", "torch._dynamo"]
    )
    from tests.conformance.suite_case import Case

    with results.open("a", encoding="utf-8") as file:
        if not names:
            for name in unittest.defaultTestLoader.getTestCaseNames(Case):
                print(json.dumps({"test": name}), file=file)
            return
        for name in names:
            begun = time.monotonic()
            print(f"=== {os.environ['BACKEND']} {name}", file=sys.stderr, flush=True)
            outcome, text = _result(Case(name))
            seconds = round(time.monotonic() - begun, 2)
            record = {"test": name, "outcome": outcome, "seconds": seconds, "text": text}
            print(json.dumps(record), file=file, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
