"""Where a campaign takes place: hosts as network namespaces, a store, an aggregator; and faults.

Three hosts have ranks: h0, h1, and b0, whose cable is a process that can spoil frames. h2 is
foreign: it only sends what nobody asked for.
"""

import contextlib
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from torch._C._distributed_c10d import TCPStore

from benchmarks.network.faults import Fault
from benchmarks.network.host import Host
from benchmarks.network.namespaces import Network
from tests.chaos import wire
from tests.chaos.wire import Faults
from tests.support.host import serving

__all__ = ["Place"]

_context = multiprocessing.get_context("forkserver")

_MTU = 1500
_STORM_BYTES = 200
_STORM_BURST = 50
_ANSWER_S = 30.0


class Place:
    """The network with what runs in it besides ranks. Use it in a `with` statement."""

    def __init__(self, seed: int) -> None:
        self._held = contextlib.ExitStack()
        self._seed = seed
        self._server: subprocess.Popen[str] | None = None
        self._port = 0
        self._keeper: tuple[BaseProcess, Connection, tuple[str, int]] | None = None
        try:
            self.network = Network(hosts=3, gbit=None, aggregator_gbit=None, boards=1)
            self._held.callback(self.network.close)
            h0, h1, self._foreign = self.network.hosts
            b0 = self.network.boards[0]
            self.hosts = {"h0": h0, "h1": h1, "b0": b0}
            for host in (h0, h1, self.network.aggregator):
                # A share of packets that are cut later would be many at once.
                self._ip(host, "dev", "eth0", "gso_max_segs", "1")
            self._cable = self._begin_cable(b0)
            with h0.sockets_here():
                server = TCPStore(h0.address, 0, None, True, wait_for_workers=False)
            self._store = server
            self.store = (h0.address, server.port)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Place":
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Take it down."""
        self.close()

    def close(self) -> None:
        """End what runs, and let go of the network."""
        self.end_aggregator()
        self.end_keeper()
        self._held.close()

    # The aggregator.

    def aggregator(self) -> str:
        """Return the URL of an aggregator that runs; start one if there is none."""
        if self._server is not None and self._server.poll() is not None:
            self.end_aggregator()
        if self._server is None:
            self._server, line = serving.start(
                "--port", str(self._port), place=self.network.aggregator
            )
            found = line.rpartition("udp://")[2].strip()
            assert found, line
            self._port = int(found.rpartition(":")[2])
        return f"udp://{self.network.aggregator.address}:{self._port}"

    def signal_aggregator(self, number: int) -> None:
        """Send the aggregator a signal."""
        assert self._server is not None
        self._server.send_signal(number)

    @property
    def aggregator_pid(self) -> int:
        """The process of the aggregator."""
        assert self._server is not None
        return self._server.pid

    def aggregator_kb(self) -> int:
        """Return how much memory the aggregator has, in kilobytes."""
        status = Path(f"/proc/{self.aggregator_pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    def end_aggregator(self) -> None:
        """End the aggregator, by force; the next one has its port."""
        if self._server is not None:
            self._server.kill()
            serving.finish(self._server)
            self._server = None

    # A store in a process of its own.

    def keeper(self) -> tuple[str, int]:
        """Start a store that can die; return its address."""
        self.end_keeper()
        ours, theirs = _context.Pipe()
        process = _context.Process(target=_keep, args=(theirs, self.hosts["h0"]))
        process.start()
        theirs.close()
        assert isinstance(ours, Connection)
        assert ours.poll(_ANSWER_S), "the store has not started"
        self._keeper = process, ours, (self.hosts["h0"].address, ours.recv())
        return self._keeper[2]

    def end_keeper(self) -> None:
        """Kill that store."""
        if self._keeper is not None:
            process, pipe, _ = self._keeper
            process.kill()
            process.join()
            pipe.close()
            self._keeper = None

    # Faults, each for the time of a block.

    @contextlib.contextmanager
    def loss(self, host: str, share: float) -> Iterator[None]:
        """Lose this share of a host's packets, each way."""
        if host == "b0":
            with self.spoilt(Faults(lost=share)):
                yield
            return
        there = self.hosts.get(host, self.network.aggregator)
        for incoming in (False, True):
            self.network.impair(there, Fault(share), incoming=incoming)
        try:
            yield
        finally:
            for incoming in (False, True):
                self.network.impair(there, None, incoming=incoming)

    @contextlib.contextmanager
    def deaf(self, host: str) -> Iterator[None]:
        """Let a host send, and receive nothing."""
        there = self.hosts.get(host, self.network.aggregator)
        self.network.impair(there, Fault(), incoming=True)
        try:
            yield
        finally:
            self.network.impair(there, None, incoming=True)

    @contextlib.contextmanager
    def spoilt(self, faults: Faults) -> Iterator[None]:
        """Let the cable of b0 spoil frames."""
        self._tell_cable(faults)
        try:
            yield
        finally:
            self._tell_cable(Faults())

    @contextlib.contextmanager
    def unplugged(self, host: str) -> Iterator[None]:
        """Pull a host's cable."""
        there = self.hosts.get(host, self.network.aggregator)
        self.network.unplug(there)
        try:
            yield
        finally:
            self.network.unplug(there, plugged=True)

    @contextlib.contextmanager
    def narrowed(self, host: str, mtu: int) -> Iterator[None]:
        """Let a host's interface take smaller packets only."""
        there = self.hosts.get(host, self.network.aggregator)
        self._ip(there, "dev", "eth0", "mtu", str(mtu))
        try:
            yield
        finally:
            self._ip(there, "dev", "eth0", "mtu", str(_MTU))

    @contextlib.contextmanager
    def black_hole(self, mtu: int) -> Iterator[None]:
        """Let the switch drop larger packets without a word."""
        self.network.narrow(mtu)
        try:
            yield
        finally:
            self.network.narrow(_MTU)

    @contextlib.contextmanager
    def forgotten(self, choose: random.Random) -> Iterator[None]:
        """Flush the hosts' tables of neighbours, again and again."""

        def flush() -> None:
            for host in (*self.hosts.values(), self.network.aggregator):
                host.run("ip", "neigh", "flush", "all")
            time.sleep(choose.uniform(0.0, 0.1))

        with _again_and_again(flush):
            yield

    @contextlib.contextmanager
    def storm(self, choose: random.Random) -> Iterator[None]:
        """Let a foreign host send garbage to the aggregator, to ranks, and to everybody."""
        targets = [
            (self.network.aggregator.address, self._port or 4700),
            *((host.address, choose.randrange(1024, 65536)) for host in self.hosts.values()),
            ("10.77.0.255", self._port or 4700),
        ]
        with self._foreign.sockets_here():
            sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)

        def burst() -> None:
            for _ in range(_STORM_BURST):
                garbage = choose.randbytes(choose.randrange(_STORM_BYTES, _MTU - 28))
                # The version of true packets, now and then, and what follows.
                head = bytes((choose.choice((0x20, 0x21, 0x22)),)) if choose.random() < 0.5 else b""
                with contextlib.suppress(OSError):
                    sender.sendto(head + garbage, choose.choice(targets))
            time.sleep(0.001)

        with sender, _again_and_again(burst):
            yield

    @contextlib.contextmanager
    def full_memory_files(self, host: str) -> Iterator[None]:
        """Leave no byte in a host's /dev/shm."""
        there = self.hosts[host]
        remount = "mount", "-o"
        there.run(*remount, "remount,size=4k", "/dev/shm").check_returncode()
        there.run("sh", "-c", "head -c 4096 /dev/zero > /dev/shm/full").check_returncode()
        try:
            yield
        finally:
            there.run("rm", "-f", "/dev/shm/full").check_returncode()
            there.run(*remount, "remount,size=50%", "/dev/shm").check_returncode()

    @contextlib.contextmanager
    def stopped(self, pid: int) -> Iterator[None]:
        """Stop a process."""
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _ip(self, host: Host, *words: str) -> None:
        host.run("ip", "link", "set", *words).check_returncode()

    def _begin_cable(self, host: Host) -> tuple[BaseProcess, Connection]:
        ours, theirs = _context.Pipe()
        process = _context.Process(target=wire.carry, args=(theirs, host, self._seed))
        process.start()
        theirs.close()
        assert isinstance(ours, Connection)

        def end() -> None:
            process.kill()
            process.join()
            ours.close()

        self._held.callback(end)
        assert ours.poll(_ANSWER_S) and ours.recv() == "ready"
        self.network.plug(host, wire.CABLE)
        return process, ours

    def _tell_cable(self, faults: Faults) -> None:
        pipe = self._cable[1]
        pipe.send(faults)
        assert pipe.poll(_ANSWER_S) and pipe.recv() == "done", "the cable does not answer"


@contextlib.contextmanager
def _again_and_again(action: Callable[[], object]) -> Iterator[None]:
    over = threading.Event()

    def repeat() -> None:
        while not over.is_set():
            action()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _keep(connection: Connection, place: Host) -> None:
    place.enter()
    server = TCPStore(place.address, 0, None, True, wait_for_workers=False)
    connection.send(server.port)
    with contextlib.suppress(EOFError):
        connection.recv()
