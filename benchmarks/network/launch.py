"""Starts an aggregator and ranks on the hosts of a network, follows and ends them, each by its id.

Ranks meet at a store that rank 0 has on the first host, as torchrun would make them. Everything
that is started here dies with the thread that starts it.
"""

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import MappingProxyType

from afflux.processes import end_processes
from afflux_hdl.contract import wire
from benchmarks.network import mpi
from benchmarks.network.host import Host
from benchmarks.network.namespaces import Network

__all__ = ["RanksEnded", "aggregator", "run_ranks"]

_STORE_PORT = 29500
_START_S = 120.0
_LAST_LINES = 40
_PATIENCE_S = 5.0
"""With a process that is to end."""

_PROGRAM = ["-m", "benchmarks.network.rank"]
"""The program that Python runs as each rank."""


class RanksEnded(RuntimeError):
    """The ranks did not end well; the message gives the reason."""


@contextmanager
def aggregator(
    host: Host,
    engine: str = "soft",
    *,
    default_buffers: bool = False,
    python: str = sys.executable,
) -> Iterator[tuple[str, str]]:
    """Run `afflux serve` on a host; yield its address and port, and its process.

    Args:
        host: Where.
        engine: What it serves: "soft" or "streams", which may be there at once.
        default_buffers: Whether receive buffers stay as Linux makes them.
        python: Of the version that serves.

    Raises:
        RanksEnded: It did not start.
    """
    buffers = [python, "-m", "benchmarks.network.default_buffers"]
    command = [*(buffers if default_buffers else []), python, "-m"]
    port = wire.PORT + (engine == "streams")
    command += ["afflux.commands.cli", "serve", engine, "--host", host.address, f"--port={port}"]
    # Nobody else is in this network.
    command += ["--no-secret"]
    server = host.popen(*command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        assert server.stdout is not None
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=_read, args=(server.stdout, lines.put), daemon=True).start()
        try:
            line = lines.get(timeout=_START_S)
        except queue.Empty:
            line = "nothing was said"
        if not line.startswith("afflux: ") or "://" not in line:
            raise RanksEnded(f"no aggregator: {line.strip()}")
        yield f"{host.address}:{port}", str(server.pid)
    finally:
        end_processes([server], patience_s=_PATIENCE_S)


def run_ranks(
    network: Network,
    ranks_per_host: int,
    arguments: Sequence[str],
    on_line: Callable[[str], bool],
    *,
    limit_s: float,
    with_mpi: bool = False,
    program: Sequence[str] = (),
    python: str = sys.executable,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Run ranks on all hosts to their end.

    Args:
        network: Where.
        ranks_per_host: On each host; those of a host follow each other.
        arguments: Of each.
        on_line: Called with each line that any prints; returns True if it has dealt with it, which
            is a sign of life.
        limit_s: Seconds without such a sign, after which all ranks are killed.
        with_mpi: Intel MPI's launcher starts them.
        program: The program for Python, if not this benchmark's usual rank.
        python: Of the version that is measured.
        settings: Further variables of all ranks.

    Raises:
        RanksEnded: They did not end well, or took too long.
    """
    command = [python, *(program or _PROGRAM), *arguments]
    environment = _environment(network) | dict(settings)
    lines: queue.Queue[tuple[int, str]] = queue.Queue()
    processes: list[subprocess.Popen[str]] = []
    with ExitStack() as held:
        held.callback(end_processes, processes, patience_s=_PATIENCE_S)
        if with_mpi:
            commands = [[*mpi.launcher(network.hosts, ranks_per_host), *command]]
            environment |= mpi.variables(network.hosts[0])
        else:
            commands = [
                place.command("env", *_place_of_rank(number, network, ranks_per_host), *command)
                for number, place in enumerate(
                    host for host in network.hosts for _ in range(ranks_per_host)
                )
            ]
        for number, each in enumerate(commands):
            process = subprocess.Popen(
                each,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
            processes.append(process)
            assert process.stdout is not None

            def put(line: str, number: int = number) -> None:
                lines.put((number, line))

            threading.Thread(target=_read, args=(process.stdout, put), daemon=True).start()
        _follow(processes, lines, on_line, limit_s)


def _environment(network: Network) -> dict[str, str]:
    """Return what all ranks see. AFFLUX_ variables are the user's, but for the aggregator's."""
    inherited = {key: value for key, value in os.environ.items() if key != "AFFLUX_AGGREGATOR"}
    first = network.hosts[0]
    return inherited | {
        "MASTER_ADDR": first.address,
        "MASTER_PORT": str(_STORE_PORT),
        "GLOO_SOCKET_IFNAME": first.interface,
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }


def _place_of_rank(rank: int, network: Network, ranks_per_host: int) -> list[str]:
    """Return what torchrun would set for a rank. An MPI launcher has its own variables."""
    ranks = len(network.hosts) * ranks_per_host
    return [f"RANK={rank}", f"WORLD_SIZE={ranks}", f"LOCAL_RANK={rank % ranks_per_host}"]


def _read(stream: Iterator[str], put: Callable[[str], None]) -> None:
    for line in stream:
        put(line)
    put("")


def _follow(
    processes: "Sequence[subprocess.Popen[str]]",
    lines: "queue.Queue[tuple[int, str]]",
    on_line: Callable[[str], bool],
    limit_s: float,
) -> None:
    """Pass lines on until all processes have ended."""
    last: dict[int, list[str]] = {number: [] for number in range(len(processes))}
    running = set(last)
    deadline = time.monotonic() + limit_s
    while running:
        try:
            number, line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise RanksEnded(f"the ranks said nothing for {limit_s:g} s and were killed") from None
        if not line:
            running.discard(number)
            status = processes[number].wait(30)
            if status != 0:
                raise RanksEnded(_told(number, status, last[number]))
        elif on_line(line):
            deadline = time.monotonic() + limit_s
        else:
            last[number] = [*last[number], line][-_LAST_LINES:]


def _told(number: int, status: int, lines: list[str]) -> str:
    """Return the line that says most about how a rank ended."""
    said = [line.strip() for line in lines if line.strip()]
    marks = ("Fatal Python error", "Timeout (", "Error: ", "error: ")
    found = [line for mark in marks for line in said if mark in line] or said[-1:]
    return f"rank {number} ended with {status}: {found[0][:240] if found else 'nothing was said'}"
