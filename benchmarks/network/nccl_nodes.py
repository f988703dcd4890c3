"""Nodes of a communicator on hosts of a network: programs that play NCCL's proxy, each at a host.

The program is `drivers/native/tests/nccl_proxy_bench.cpp`. It is compiled when it is first needed.
"""

import contextlib
import os
import selectors
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from afflux.processes import end_processes
from benchmarks.network.host import Host
from benchmarks.report.stamp import ROOT

__all__ = ["Nodes", "NodesEnded", "nodes_on", "program"]

_SOURCE = ROOT / "drivers" / "native" / "tests" / "nccl_proxy_bench.cpp"
_PATIENCE_S = 5.0
_START_S = 60.0
_CALL_S = 120.0


class NodesEnded(RuntimeError):
    """The nodes did not do what they were told; the message gives the reason."""


def program() -> Path:
    """Return the compiled program.

    Raises:
        subprocess.CalledProcessError: It does not compile.
    """
    made = ROOT / "build" / "bench" / "nccl_proxy"
    sources = [_SOURCE, _SOURCE.with_name("nccl_tables.hpp")]
    if not made.exists() or made.stat().st_mtime < max(each.stat().st_mtime for each in sources):
        made.parent.mkdir(parents=True, exist_ok=True)
        compiler = os.environ.get("CXX", "c++")
        include = f"-I{ROOT / 'drivers' / 'native'}"
        command = [compiler, "-std=c++20", "-O2", include, str(_SOURCE), "-o", str(made), "-ldl"]
        subprocess.run(command, check=True)
    return made


class Nodes:
    """The nodes of one communicator, which wait for what to do."""

    def __init__(self, processes: "Sequence[subprocess.Popen[str]]") -> None:
        self._processes = processes

    def measure(self, size: int, calls: int) -> tuple[float, float]:
        """Let all nodes make all-reduces, one after the other.

        Args:
            size: Bytes of each.
            calls: How many.

        Returns:
            Seconds of a call at the slowest node, and the mean node's seconds of processor time.

        Raises:
            NodesEnded: A node failed, or took too long.
        """
        for each in self._processes:
            assert each.stdin is not None
            each.stdin.write(f"{size} {calls}\n")
            each.stdin.flush()
        found = [words_of(line, "took") for line in self.lines(_CALL_S)]
        seconds = max(float(took) for took, _ in found)
        processor = sum(float(used) for _, used in found) / len(found)
        return seconds / calls, processor / calls

    def exchange(self) -> None:
        """Carry the handles of each node to all, as NCCL's bootstrap does; wait for all."""
        handles = [word for line in self.lines(_START_S) for word in words_of(line, "handles")]
        for each in self._processes:
            assert each.stdin is not None
            each.stdin.write(" ".join(handles) + "\n")
            each.stdin.flush()
        for line in self.lines(_START_S):
            words_of(line, "ready")

    def lines(self, limit_s: float) -> list[str]:
        """Return the next line of each node."""
        until = time.monotonic() + limit_s
        found: dict[int, str] = {}
        with selectors.DefaultSelector() as waiting:
            for rank, each in enumerate(self._processes):
                assert each.stdout is not None
                waiting.register(each.stdout, selectors.EVENT_READ, rank)
            while len(found) < len(self._processes):
                ready = waiting.select(max(0.0, until - time.monotonic()))
                if not ready:
                    missing = sorted(set(range(len(self._processes))) - set(found))
                    raise NodesEnded(f"nodes {missing} said nothing for {limit_s:g} s")
                for key, _ in ready:
                    # A node says one line, and then waits.
                    found[key.data] = key.fileobj.readline()  # type: ignore[union-attr]
                    waiting.unregister(key.fileobj)
                    if not found[key.data]:
                        raise NodesEnded(f"node {key.data} ended")
        return [found[rank] for rank in range(len(self._processes))]


def words_of(line: str, name: str) -> list[str]:
    """Return the words behind the name that a line begins with.

    Raises:
        NodesEnded: It begins with another.
    """
    first, *words = line.split()
    if first != name:
        raise NodesEnded(f"a node said {line.strip()!r} in place of {name}")
    return words


@contextlib.contextmanager
def nodes_on(
    hosts: Sequence[Host], library: Path, way: str, settings: Mapping[str, str]
) -> Iterator[Nodes]:
    """Form a communicator with a node on each host.

    Args:
        hosts: Where.
        library: Of the plugin.
        way: "collnet", through an aggregator, or "ring", from node to node.
        settings: Variables of all nodes.

    Raises:
        NodesEnded: It did not form.
    """
    others = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AFFLUX_", "NCCL_"))
    }
    processes: list[subprocess.Popen[str]] = []
    with contextlib.ExitStack() as held:
        held.callback(end_processes, processes, patience_s=_PATIENCE_S)
        for rank, host in enumerate(hosts):
            words = str(program()), str(library), way, str(rank), str(len(hosts))
            process = host.popen(
                *words,
                env={**others, **settings, "NCCL_SOCKET_IFNAME": host.interface},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            processes.append(process)
        nodes = Nodes(processes)
        nodes.exchange()
        yield nodes
        for each in processes:
            assert each.stdin is not None
            each.stdin.close()
        for each in processes:
            each.wait(_START_S)
