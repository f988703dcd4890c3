"""Runs scripts on each backend: most of them in one set of ranks, some in sets of their own."""

import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.conformance.outcome import Outcome, Play
from tests.conformance.rank_set import RankSet
from tests.conformance.script import Script
from tests.conformance.table import Row

__all__ = ["rows"]


def rows(
    scripts: Iterable[Script], backends: Sequence[str], size: int, folder: Path
) -> Iterator[Row]:
    """Run each script on each backend, in turn, so that both meet the same machine.

    Args:
        scripts: The scripts to run.
        backends: Names of backends; values are compared with those of "gloo".
        size: Ranks.
        folder: For what the ranks write.
    """
    shared = {name: RankSet(name, size, folder) for name in backends}
    try:
        for script in scripts:
            plays = {name: _play(script, shared[name], size, folder) for name in backends}
            if Row(script, plays).verdict == "GLOO FAILS":
                # Gloo aborts now and then when its group ends in one of its own threads.
                plays["gloo"] = _play(script, shared["gloo"], size, folder)
            yield Row(script, plays)
    finally:
        for each in shared.values():
            each.end()


def _play(script: Script, shared: RankSet, size: int, folder: Path) -> Play:
    if script.launched:
        return _launch(script, shared.backend, size)
    if not script.alone:
        return shared.run(script)
    own = RankSet(shared.backend, size, folder, script.environment)
    try:
        return own.run(script)
    finally:
        own.end()


def _launch(script: Script, backend: str, size: int) -> Play:
    started = time.monotonic()
    outcome = Outcome(0)
    log = ""
    try:
        outcome.value = script.body(backend, size)
    except Exception as error:
        outcome.kind, outcome.message = type(error).__name__, str(error)
        log = traceback.format_exc()
    outcome.seconds = time.monotonic() - started
    return Play([outcome], log)
