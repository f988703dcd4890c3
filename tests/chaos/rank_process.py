"""A rank of the campaign: a process that lives through many trials, until one kills it.

It does what comes through a pipe: form a group, carry out a part of a trial's calls, make the
group smaller, end it. It answers each with a dictionary, which has the error if there was one.
"""

import contextlib
import faulthandler
import gc
import mmap
import os
import re
import resource
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

import afflux
from afflux.adapters import choice, native
from afflux_drivers.errors import AffluxError
from benchmarks.network.host import Host
from tests.chaos import calls, planted
from tests.chaos.calls import WrongResult
from tests.chaos.killing import kill_after
from tests.support.host.digests import digest

__all__ = ["serve"]

# This module is imported where ranks are forked from: none of them does this again.
assert choice
with contextlib.suppress(native.AdapterUnavailable):
    native.load()
gc.collect()
gc.freeze()

_TOLD = 1500
"""Characters of an error that are kept."""

_ABORT = 1
"""torch's SHRINK_ABORT."""


def serve(
    connection: Connection, number: int, place: Host, folder: str, environment: Mapping[str, str]
) -> None:
    """Do what comes through the pipe until it ends.

    Args:
        connection: The pipe.
        number: Which process this is, among those of the campaign.
        place: The host where it runs.
        folder: Of its log, and of the file in which it says how far it is.
        environment: Variables that it sees.
    """
    place.enter()
    log = os.open(f"{folder}/{number}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, sys.stdout.fileno())
    os.dup2(log, sys.stderr.fileno())
    os.close(log)
    faulthandler.enable(sys.stderr)
    faulthandler.register(signal.SIGUSR1, sys.stderr, all_threads=True)
    os.environ.update(environment)
    torch.set_num_threads(1)
    rank = _Rank(number, folder)
    while True:
        try:
            name, arguments = connection.recv()
        except EOFError:
            return
        connection.send(rank.answer(name, arguments))


def _kind_of(descriptor: str) -> str:
    """Return what a descriptor is, without numbers."""
    try:
        return re.sub(r"[\d\[\]]+", "", os.readlink(f"/proc/self/fd/{descriptor}"))
    except OSError:
        return "closed"


class _Rank:
    def __init__(self, number: int, folder: str) -> None:
        self._number = number
        self._store: TCPStore | None = None
        self._where: tuple[str, int] | None = None
        self._members: list[int] = []
        self._key: tuple[int, int] = (0, 0)
        self._most = 1
        self._files = resource.getrlimit(resource.RLIMIT_NOFILE)
        path = Path(folder) / f"{number}.progress"
        path.write_bytes(bytes(8))
        with path.open("r+b") as file:
            self._progress = mmap.mmap(file.fileno(), 8)

    def answer(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Do one thing; return what came of it, with times of the machine's monotonic clock."""
        began = time.monotonic()
        answer: dict[str, Any] = {"error": None, "wrong": ""}
        try:
            answer |= getattr(self, f"_{name}")(**arguments) or {}
        except WrongResult as wrong:
            answer["wrong"] = str(wrong)
        except Exception as error:
            answer["error"] = {
                "kind": type(error).__name__,
                "named": isinstance(error, AffluxError),
                "message": str(error)[:_TOLD],
            }
        return {**answer, "began": began, "at": time.monotonic()}

    def _form(
        self,
        way: str,
        variables: Mapping[str, str],
        store: tuple[str, int],
        prefix: str,
        members: Sequence[int],
        timeout_s: float,
        bug: str,
    ) -> None:
        planted.plant(bug, members.index(self._number))
        os.environ["AFFLUX_AGGREGATOR"] = way
        os.environ.update(variables)
        if self._where != store:
            self._store, self._where = TCPStore(*store, is_master=False), store
        assert self._store is not None
        self._members = list(members)
        dist.init_process_group(
            "afflux",
            store=PrefixStore(prefix, self._store),
            rank=members.index(self._number),
            world_size=len(members),
            timeout=timedelta(seconds=timeout_s),
        )

    def _run(
        self,
        seed: int,
        trial: int,
        first: int,
        last: int,
        most: int,
        kill: tuple[int, int] | None = None,
    ) -> dict[str, Any]:
        """Carry out calls; be killed so many nanoseconds after the beginning of one of them."""
        rank, judged, error = self._members.index(self._number), 0, None
        for number in range(first, last):
            self._progress[:] = number.to_bytes(8, "little")
            call = calls.drawn(seed, trial, number, most)
            if kill is not None and number == kill[0]:
                kill_after(kill[1])
            began = time.monotonic()
            try:
                judged += calls.play(call, rank, self._members, (seed, trial))
            except RuntimeError as failure:
                error = {
                    "kind": type(failure).__name__,
                    "named": isinstance(failure, AffluxError),
                    "message": str(failure)[:_TOLD],
                    "call": number,
                    "after_s": time.monotonic() - began,
                }
                break
        if kill is not None and error is None:
            # The moment has not come yet: it is then between two calls.
            time.sleep(60)
        back = afflux.statistics().get("fail_backs", 0) if error is None else 0
        return {"error": error, "judged": judged, "fail_backs": back}

    def _shrink(self, dead: Sequence[int]) -> None:
        ranks = [self._members.index(each) for each in dead]
        dist.shrink_group(ranks, shrink_flags=_ABORT)
        self._members = [each for each in self._members if each not in dead]
        size, rank = dist.get_world_size(), dist.get_rank()
        if (size, rank) != (len(self._members), self._members.index(self._number)):
            raise WrongResult(f"shrink_group has made rank {rank} of {size} of {self._members}")

    def _digest(self) -> dict[str, str]:
        return {"digest": digest(self._number)}

    def _limit(self, spare: int | None) -> None:
        """Let this process open so many more descriptors; None: as many as before."""
        most = self._files[0]
        if spare is not None:
            most = max(int(each) for each in os.listdir("/proc/self/fd")) + 1 + spare
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, self._files[1]))

    def _end(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()

    def _census(self) -> dict[str, Any]:
        """Return what this process has, and what is in its host's /dev/shm."""
        gc.collect()
        maps = Path("/proc/self/maps").read_text()
        status = Path("/proc/self/status").read_text()
        sizes = {
            name: int(line.split()[1])
            for line in status.splitlines()
            for name in ("VmRSS", "Threads")
            if line.startswith(f"{name}:")
        }
        children: list[str] = []
        with contextlib.suppress(OSError):
            own = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
            children = own.split()
        found = Counter(_kind_of(each) for each in os.listdir("/proc/self/fd"))
        return {
            "descriptors": found.total(),
            "kinds": dict(found),
            "threads": sizes["Threads"],
            "names": sorted(each.name for each in threading.enumerate()),
            "rss_kb": sizes["VmRSS"],
            "segments": sum("memfd:afflux" in line for line in maps.splitlines()),
            "children": children,
            "shm": sorted(os.listdir("/dev/shm")),
        }
