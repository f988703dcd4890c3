"""A set of ranks of one backend: processes that run one script after the other.

They are forked from a process that has imported torch and the scripts, so a set is there at once.
One that a script has ended, or in which one has failed, is replaced by a new one.
"""

import contextlib
import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from torch._C._distributed_c10d import TCPStore

from tests.conformance import rank_process
from tests.conformance.catalogue import THEMES
from tests.conformance.outcome import Outcome, Play
from tests.conformance.script import ENDED, Script

__all__ = ["RankSet", "preload"]

_context = multiprocessing.get_context("forkserver")

_AFTER_A_DEATH_S = 15.0
"""For the other ranks to end, when one has died without a word."""

_LOG_LINES = 40


def preload() -> None:
    """Let the server that ranks are forked from import the scripts; before the first is forked.

    Not by importing this module: a process of pytest has one server for all its tests.
    """
    _context.set_forkserver_preload(
        [
            "torch._dynamo",
            "tests.conformance.rank_process",
            *(f"tests.conformance.scripts.{theme}" for theme in THEMES),
        ]
    )


class RankSet:
    """Ranks of one backend, started when they are first needed.

    Args:
        backend: Name by which `init_process_group` makes their group.
        size: Ranks.
        folder: For what they write.
        environment: Variables that they see.
    """

    def __init__(
        self, backend: str, size: int, folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.backend = backend
        self.size = size
        self._folder = folder
        self._environment = dict(environment or {})
        self._processes: list[BaseProcess] = []
        self._pipes: list[Connection] = []
        self._server: TCPStore | None = None

    def run(self, script: Script) -> Play:
        """Run a script at all ranks."""
        if not self._processes:
            self._start()
        logs = [self._log(rank) for rank in range(self.size)]
        before = [each.stat().st_size if each.exists() else 0 for each in logs]
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.send((script.module, script.name))
        play = Play(self._outcomes(script))
        if not play.passed:
            self.end()
            play.log = "\n".join(
                f"[rank {rank}]\n{_written(log, start)}"
                for rank, (log, start) in enumerate(zip(logs, before, strict=True))
            )
        return play

    def end(self) -> None:
        """End the processes, by force if a word does not do."""
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.send(("", ""))
        until = time.monotonic() + 5.0
        for process in self._processes:
            process.join(max(0.1, until - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
        for pipe in self._pipes:
            pipe.close()
        self._processes, self._pipes, self._server = [], [], None

    def _log(self, rank: int) -> Path:
        return self._folder / f"{self.backend.replace(':', '-')}-rank{rank}.log"

    def _start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        # Here, as it must outlive a rank that dies.
        self._server = TCPStore(rank_process.HOST, 0, None, True, wait_for_workers=False)
        environment = {
            "MASTER_ADDR": rank_process.HOST,
            **{name: value for name, value in os.environ.items() if name.startswith("AFFLUX_")},
            **self._environment,
        }
        for rank in range(self.size):
            ours, theirs = _context.Pipe()
            process = _context.Process(
                target=rank_process.serve,
                args=(
                    theirs,
                    rank,
                    self.size,
                    self.backend,
                    self._server.port,
                    str(self._log(rank)),
                    environment,
                ),
            )
            process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(ours)

    def _outcomes(self, script: Script) -> list[Outcome]:
        limit_s = script.limit_s
        outcomes = [
            Outcome(rank, kind="hung", message=f"killed after {limit_s:g} s", seconds=limit_s)
            for rank in range(self.size)
        ]
        waiting = dict(zip(self._pipes, range(self.size), strict=True))
        until = time.monotonic() + limit_s
        while waiting:
            ready = wait(list(waiting), timeout=max(0.0, until - time.monotonic()))
            if not ready:
                break
            for pipe in ready:
                assert isinstance(pipe, Connection)
                rank = waiting.pop(pipe)
                try:
                    outcomes[rank] = pickle.loads(pipe.recv_bytes())
                except (EOFError, OSError):
                    outcomes[rank] = Outcome(rank, kind="died", message=self._end_of(rank))
                    if script.ends_a_rank and self._processes[rank].exitcode == ENDED:
                        outcomes[rank] = Outcome(rank)
                    until = min(until, time.monotonic() + _AFTER_A_DEATH_S)
        return outcomes

    def _end_of(self, rank: int) -> str:
        process = self._processes[rank]
        process.join(5.0)
        code = process.exitcode
        if code is not None and code < 0:
            return f"of {signal.Signals(-code).name}"
        return f"with status {code}"


def _written(log: Path, start: int) -> str:
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").splitlines()
    return "\n".join(lines[-_LOG_LINES:])
