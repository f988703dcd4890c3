"""The processes that are the campaign's ranks: started once, and replaced when a trial kills one.

They are forked from a process that has imported torch, which takes some milliseconds.
"""

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from benchmarks.network.host import Host
from tests.chaos import rank_process

__all__ = ["Crew", "Member", "answers", "preload", "send"]

_context = multiprocessing.get_context("forkserver")

_STACKS_S = 2.0
"""For a process that hangs to write where it is."""

_LOG_LINES = 60


def preload() -> None:
    """Let the server that ranks are forked from import what they need; before the first one."""
    _context.set_forkserver_preload(["tests.chaos.rank_process"])


class Member:
    """One process.

    Attributes:
        number: Which one of the campaign's; never used again.
        place: Its host.
        baseline: What it had after its first trial.
    """

    def __init__(self, number: int, place: Host, folder: Path, environment: Mapping[str, str]):
        self.number, self.place = number, place
        self.baseline: dict[str, Any] = {}
        self._folder = folder
        self.pipe, theirs = _context.Pipe()
        assert isinstance(self.pipe, Connection)
        self.process = _context.Process(
            target=rank_process.serve, args=(theirs, number, place, str(folder), environment)
        )
        self.process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """The process."""
        assert self.process.pid is not None
        return self.process.pid

    @property
    def progress(self) -> int:
        """The number of the call that it is in."""
        return int.from_bytes((self._folder / f"{self.number}.progress").read_bytes(), "little")

    def log(self) -> str:
        """Return the end of its output."""
        path = self._folder / f"{self.number}.log"
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        return "\n".join(lines[-_LOG_LINES:])

    def stacks(self) -> str:
        """Return where it hangs, in Python."""
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGCONT)
            os.kill(self.pid, signal.SIGUSR1)
        time.sleep(_STACKS_S)
        return self.log()

    def close(self) -> None:
        """End it by force, and its files."""
        self.process.kill()
        self.process.join()
        self.pipe.close()
        for suffix in ("log", "progress"):
            (self._folder / f"{self.number}.{suffix}").unlink(missing_ok=True)


class Crew:
    """All processes, by their hosts."""

    def __init__(
        self, hosts: Mapping[str, Host], folder: Path, environment: Mapping[str, str]
    ) -> None:
        self._hosts, self._folder, self._environment = hosts, folder, environment
        self._idle: dict[str, list[Member]] = {name: [] for name in hosts}
        self._next = 0

    def take(self, layout: Sequence[str]) -> list[Member]:
        """Return a process of each of these hosts, in order; new ones where there are too few."""
        taken, free = [], {name: list(each) for name, each in self._idle.items()}
        for name in layout:
            if not free[name]:
                member = Member(self._next, self._hosts[name], self._folder, self._environment)
                self._next += 1
                self._idle[name].append(member)
                free[name].append(member)
            taken.append(free[name].pop(0))
        return taken

    def drop(self, members: Collection[Member]) -> None:
        """End processes; others take their places in the next trials."""
        for member in members:
            member.close()
            for each in self._idle.values():
                if member in each:
                    each.remove(member)

    def close(self) -> None:
        """End all."""
        self.drop([member for each in self._idle.values() for member in each])


def send(asked: Collection[Member], name: str, /, **arguments: Any) -> None:
    """Ask processes for the same."""
    for member in asked:
        with contextlib.suppress(OSError):
            member.pipe.send((name, arguments))


def answers(
    members: Collection[Member],
    bound_s: float,
    meanwhile: Callable[[Mapping[Member, dict[str, Any]]], None] | None = None,
) -> tuple[dict[Member, dict[str, Any]], dict[Member, float]]:
    """Wait for what processes answer; return it, and when which of them died.

    Args:
        members: The processes.
        bound_s: Seconds from the last death, or from now, until all have answered.
        meanwhile: Called in between with the answers that have come, a thousand times a second.
    """
    waiting: dict[Any, Member] = {each.pipe: each for each in members}
    found: dict[Member, dict[str, Any]] = {}
    died: dict[Member, float] = {}
    until = time.monotonic() + bound_s
    while waiting and time.monotonic() < until:
        left_s = until - time.monotonic()
        ready = wait(list(waiting), 0.001 if meanwhile else max(0.0, left_s))
        for pipe in ready:
            member = waiting.pop(pipe)
            try:
                found[member] = member.pipe.recv()
            except (EOFError, OSError):
                died[member] = time.monotonic()
                until = time.monotonic() + bound_s
        if meanwhile is not None:
            meanwhile(found)
    return found, died
