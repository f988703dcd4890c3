"""Runs a function as the ranks of a group, each a process of its own, within a time limit.

The processes are forked from one that has already imported torch: a start takes milliseconds, where
a fresh interpreter takes seconds.
"""

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, Store, TCPStore

import afflux  # noqa: F401 - registers the backend
from afflux.group_statistics import group_of
from benchmarks.network.host import Host
from tests.support.forking import context

Body = Callable[..., Any]


@dataclass
class Outcome:
    """How one rank ended: with a value, or with an error, or not at all (killed at the limit)."""

    rank: int
    value: Any = None
    kind: str = ""
    message: str = ""
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        return bool(self.kind)


def run_ranks(
    body: Body,
    size: int,
    *arguments: Any,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 20.0,
    limit_s: float = 60.0,
    tcp_store: bool = False,
    hosts: Sequence[Host] = (),
) -> list[Outcome]:
    """Run `body(rank, size, *arguments)` at `size` ranks whose default group is an afflux one.

    Args:
        body: A function of a module; its value must be picklable.
        size: Ranks.
        arguments: For `body`.
        environment: Variables that the ranks see in addition to the AFFLUX_AGGREGATOR of this
            process; with BAD_RANK=r and BAD=name=value rank r sees one more.
        timeout_s: Timeout of the default group.
        limit_s: A rank that takes longer is killed; its outcome has the kind "killed".
        tcp_store: Whether ranks meet at a TCPStore, as under torchrun, and not at a file.
        hosts: Hosts of a network that the ranks share evenly, in order; they meet at a TCPStore on
            the first. None: all ranks are where this process is.
    """
    # The server that ranks are forked from has its environment from an earlier test.
    aggregator = os.environ.get("AFFLUX_AGGREGATOR", "auto")
    environment = {"AFFLUX_AGGREGATOR": aggregator, **(environment or {})}
    with tempfile.TemporaryDirectory(prefix="afflux-test-") as folder:
        server = _store_on(hosts) if tcp_store or hosts else None
        store = (server.host, server.port) if server is not None else str(Path(folder) / "store")
        processes, pipes = [], {}
        for rank in range(size):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(
                target=_run,
                args=(
                    sender,
                    hosts[rank * len(hosts) // size] if hosts else None,
                    body,
                    rank,
                    size,
                    store,
                    timeout_s,
                    environment,
                    arguments,
                ),
            )
            process.start()
            sender.close()
            processes.append(process)
            pipes[receiver] = rank
        # Only now: the first start waits until the server has imported what is preloaded.
        started = time.monotonic()
        outcomes = [Outcome(rank, kind="killed", message="at the limit") for rank in range(size)]
        try:
            while pipes:
                left_s = started + limit_s - time.monotonic()
                ready = wait(list(pipes), timeout=max(0.0, left_s))
                if not ready:
                    break
                for pipe in ready:
                    assert isinstance(pipe, Connection)
                    rank = pipes.pop(pipe)
                    try:
                        outcomes[rank] = pipe.recv()
                    except EOFError:
                        outcomes[rank] = Outcome(rank, kind="died", message="without a word")
            for process in processes:
                process.join(max(0.1, started + limit_s - time.monotonic()))
                if process.is_alive() and outcomes[processes.index(process)].kind != "killed":
                    rank = processes.index(process)
                    outcomes[rank] = Outcome(rank, kind="killed", message="did not exit")
        finally:
            for process in processes:
                if process.is_alive():
                    process.kill()
                process.join()
        return outcomes


def values(outcomes: list[Outcome]) -> list[Any]:
    """Every rank's value; fails the test with the first error otherwise."""
    for outcome in outcomes:
        assert not outcome.failed, f"rank {outcome.rank}: {outcome.kind}: {outcome.message}"
    return [outcome.value for outcome in outcomes]


def caught(action: Callable[[], object]) -> tuple[str, str, float]:
    """Return message, kind and seconds of the error that `action` raises."""
    started = time.monotonic()
    try:
        action()
    except Exception as error:
        return str(error), type(error).__name__, time.monotonic() - started
    return "", "nothing raised", time.monotonic() - started


def failure_heard(limit_s: float = 20.0) -> Exception | None:
    """Wait, idle, until this rank knows that the default group has failed; return the error."""
    core = group_of(None)
    deadline = time.monotonic() + limit_s
    while core.failure is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return core.failure


def _store_on(hosts: Sequence[Host]) -> TCPStore:
    with hosts[0].sockets_here() if hosts else contextlib.nullcontext():
        address = hosts[0].address if hosts else "127.0.0.1"
        return TCPStore(address, 0, None, True, wait_for_workers=False)


def _meet(store: str | tuple[str, int], size: int) -> Store:
    if isinstance(store, tuple):
        return TCPStore(*store, is_master=False)
    return FileStore(store, size)


def _run(
    sender: Connection,
    host: Host | None,
    body: Body,
    rank: int,
    size: int,
    store: str | tuple[str, int],
    timeout_s: float,
    environment: dict[str, str],
    arguments: tuple[Any, ...],
) -> None:
    if host is not None:
        host.enter()
    os.environ.update(environment)
    if environment.get("BAD_RANK") == str(rank):
        name, _, value = environment["BAD"].partition("=")
        os.environ[name] = value
    torch.set_num_threads(1)
    started = time.monotonic()
    try:
        dist.init_process_group(
            "afflux",
            store=_meet(store, size),
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=timeout_s),
        )
        outcome = Outcome(rank, body(rank, size, *arguments))
    except BaseException as error:
        outcome = Outcome(rank, kind=type(error).__name__, message=str(error))
    outcome.seconds = time.monotonic() - started
    try:
        if dist.is_initialized():
            dist.destroy_process_group()
    finally:
        sender.send(outcome)
        sender.close()
