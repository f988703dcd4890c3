"""`python -m tests.conformance.torch_suite`: PyTorch's tests of backends, on Gloo and on Afflux.

Prints the tests that Gloo passes and Afflux does not, and ends with status 1 if there is one that
is not a known exception. Every test's outcome on both is in
build/conformance/torch-suite-N-ranks.json.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from afflux.adapters import native
from tests.conformance.exceptions import EXCEPTIONS
from tests.support.checkout import BUILD, ROOT

FOLDER = BUILD / "conformance" / "torch-suite"
WORKERS = 2
"""Processes that share a backend's tests, each with ranks of its own."""

Records = dict[str, dict[str, Any]]


def _start(
    backend: str, ranks: int, limit_s: int, label: str, names: Sequence[str]
) -> tuple[subprocess.Popen[bytes], Path]:
    results = FOLDER / f"{backend}-{label}.jsonl"
    environment = {
        **os.environ,
        "BACKEND": backend,
        "WORLD_SIZE": str(ranks),
        "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": str(limit_s),
        "OMP_NUM_THREADS": "1",
        "PYTORCH_PRINT_REPRO_ON_FAILURE": "0",
        # A run for every change would leave tests out or repeat them.
        "CI": "",
    }
    with (FOLDER / f"{backend}-{label}.log").open("ab") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "tests.conformance.suite_worker", str(results), *names],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return worker, results


def _read(results: Path) -> Records:
    if not results.exists():
        return {}
    lines = results.read_text(encoding="utf-8").splitlines()
    return {each["test"]: each for each in map(json.loads, lines)}


def names_of_tests(ranks: int) -> list[str]:
    """Return the names of all tests."""
    worker, results = _start("gloo", ranks, 60, "names", [])
    if worker.wait():
        raise RuntimeError(f"the tests cannot be imported; see {FOLDER}")
    return list(_read(results))


def run(
    backend: str, names: Sequence[str], ranks: int, limit_s: int, label: str = "once"
) -> Records:
    """Run tests in several processes; one that hangs or ends is replaced by another.

    Args:
        backend: Name of the backend.
        names: Tests.
        ranks: World size.
        limit_s: Seconds for a test.
        label: Names the files of this run, of which no other may have the same.
    """
    found: Records = {}
    left = [list(names[each::WORKERS]) for each in range(WORKERS)]
    workers: dict[int, tuple[subprocess.Popen[bytes], Path, float]] = {}
    while any(left) or workers:
        for each in range(WORKERS):
            if each not in workers and left[each]:
                worker, results = _start(backend, ranks, limit_s, f"{label}{each}", left[each])
                workers[each] = worker, results, time.monotonic()
        time.sleep(0.5)
        for each, (worker, results, since) in list(workers.items()):
            done = _read(results)
            fresh = [name for name in left[each] if name in done]
            if fresh:
                found.update({name: done[name] for name in fresh})
                left[each] = [name for name in left[each] if name not in done]
                workers[each] = worker, results, time.monotonic()
            status = worker.poll()
            # Twice, as a test's own limit ends it in good order.
            stuck = not fresh and time.monotonic() - since > 2 * limit_s
            if status is None and not stuck:
                continue
            del workers[each]
            _kill(worker)
            if left[each] and not fresh:
                name = left[each].pop(0)
                why = "hung" if stuck else f"ended the process with status {status}"
                found[name] = {"test": name, "outcome": "failed", "seconds": 0.0, "text": why}
    return found


def _kill(worker: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance.torch_suite", description=__doc__
    )
    parser.add_argument("--only", nargs="+", default=[], help="parts of names of tests")
    parser.add_argument("--ranks", type=int, default=3, help="PyTorch's own number (%(default)s)")
    parser.add_argument("--limit", type=int, default=60, help="seconds for a test (%(default)s)")
    options = parser.parse_args(arguments)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    # Half a minute, once, that would be the first test's otherwise.
    native.main()
    begun = time.monotonic()
    names = names_of_tests(options.ranks)
    if options.only:
        names = [name for name in names if any(part in name for part in options.only)]
    gloo = run("gloo", names, options.ranks, options.limit)
    # Tests that Gloo does not pass decide nothing.
    wanted = [name for name in names if gloo[name]["outcome"] == "ok"]
    ours = run("afflux", wanted, options.ranks, options.limit)
    worse = [name for name in wanted if ours[name]["outcome"] != "ok"]
    again = run("afflux", worse, options.ranks, options.limit, "again")
    _write(names, gloo, ours, again, options.ranks)
    for name in worse:
        print(f"{name}: {ours[name]['outcome']}, again: {again[name]['outcome']}")
        print(f"    {_reason(ours[name]['text'])[:200]}")
        if name in EXCEPTIONS:
            print(f"    exception: {EXCEPTIONS[name]}")
    for name in EXCEPTIONS:
        if name in wanted and name not in worse:
            print(f"{name}: ok, no exception any more")
    new = [name for name in worse if name not in EXCEPTIONS]
    counts = {
        outcome: sum(each["outcome"] == outcome for each in gloo.values())
        for outcome in ("ok", "skipped", "failed")
    }
    print(
        f"\ntorch {torch.__version__}, {options.ranks} ranks, {len(names)} tests, "
        f"{time.monotonic() - begun:.0f} s: Gloo passes {counts['ok']}, skips {counts['skipped']} "
        f"(most want GPUs), fails {counts['failed']}; of those that it passes Afflux fails "
        f"{len(worse)}, {len(worse) - len(new)} of them known exceptions"
    )
    return bool(new)


def _reason(text: str) -> str:
    """Return the line that names the error; the last one is often only advice."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]*(Error|Failed|Refused|Disagreement)", line)]
    # The last is the parent's, about ranks that ended with an error.
    return next(iter(named[-1:]), lines[-1] if lines else "nothing was written")


def _write(names: list[str], gloo: Records, ours: Records, again: Records, ranks: int) -> None:
    rows = [
        {"test": name, "gloo": gloo[name], "afflux": ours.get(name), "again": again.get(name)}
        for name in names
    ]
    record = {"torch": torch.__version__, "ranks": ranks, "tests": rows}
    text = json.dumps(record, indent=1)
    (FOLDER.parent / f"torch-suite-{ranks}-ranks.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
