"""A board without gateware: the software engine at an address of its own, and golden management.

It is what workers and a controller see of a board: packets to its port are summed, registers are
reached by management packets only. It lives in the test's process, so that a controller in another
one can be killed without it.
"""

import contextlib
import secrets
import socket
import threading

from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.aggregator.socket_path import SocketPath
from afflux_hdl.contract import registers
from afflux_hdl.contract.management import Settings
from afflux_sim.golden.management import GoldenManagement
from benchmarks.network.host import Host

__all__ = ["SoftBoard"]

_MAC = 0x02AF_FA00_0009


class _Node:
    """The registers of the engine and what a node adds to them. A `NodeBus`."""

    def __init__(self, engine: SoftEngine) -> None:
        self.engine = engine

    def read(self, address: int) -> int | None:
        if address == registers.node_address_of("node_identity"):
            return registers.NODE_IDENTITY
        return 0 if address >= registers.NODE_BASE else self.engine.read(address)

    def write(self, address: int, value: int) -> bool:
        if address >= registers.NODE_BASE:
            return False
        try:
            self.engine.write(address, value)
        except registers.WriteRefused:
            return False
        return True


def _bound(address: str) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((address, 0))
    return made


class SoftBoard:
    """A board; closed at the end of a `with`.

    Args:
        address: Its IPv4 address.
        place: The host of a network whose address that is; None: this machine.

    Attributes:
        key: Of its management.
        device: The URL of its registers.
        port: UDP port of the engine.
        engine: The engine.
        silent: Whether it answers no request for a register.
    """

    def __init__(self, address: str = "127.0.0.2", place: Host | None = None) -> None:
        self.key = secrets.token_bytes(16)
        with place.sockets_here() if place is not None else contextlib.nullcontext():
            self._data = _bound(address)
            self._management = _bound(address)
            # The ports behind the engine's are its jobs': the management's is none of them.
            first = self._data.getsockname()[1]
            while self._management.getsockname()[1] in range(first, first + 256):
                self._management.close()
                self._management = _bound(address)
        self._management.settimeout(0.05)
        self.port = self._data.getsockname()[1]
        self.device = f"udp://{address}:{self._management.getsockname()[1]}"
        self._settings = Settings(
            mac=_MAC,
            address=address,
            # The kernel has delivered the datagram; this is not looked at.
            controller="10.0.0.1",
            key=self.key,
            port=self._management.getsockname()[1],
            engine_port=self.port,
        )
        self.engine = SoftEngine(workers=8, lanes=16, jobs=4, slots=64)
        self.silent = False
        self._start_session()
        self._path = SocketPath(self.engine, [self._data])
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=target, name="soft-board", daemon=True)
            for target in (self._path.serve, self._serve)
        ]
        for thread in self._threads:
            thread.start()

    def _start_session(self) -> None:
        self.golden = GoldenManagement(
            self._settings.to_bytes(), secrets.randbits(64), _Node(self.engine)
        )

    def enabled(self) -> set[int]:
        """Return the numbers of the jobs that there are. Not while a controller is at work."""
        found = set()
        for number in range(4):
            self.engine.write(registers.address_of("job_index"), number)
            if self.engine.read(registers.address_of("job_enabled")):
                found.add(number)
        return found

    def reset(self) -> None:
        """Lose all jobs and the session, as by the loss of power."""
        for number in range(4):
            self.engine.write(registers.address_of("job_index"), number)
            self.engine.write(registers.address_of("job_command"), registers.Command.DESTROY)
        self._start_session()

    def close(self) -> None:
        """End it."""
        self._stopping.set()
        self._path.stop()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()
        for each in (self._data, self._management):
            each.close()

    def __enter__(self) -> "SoftBoard":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self) -> None:
        while not self._stopping.is_set():
            try:
                payload, where = self._management.recvfrom(2048)
            except TimeoutError:
                continue
            self.golden.pass_time(1_000_000)
            _, answer = self.golden.judge(payload)
            if answer is not None and not self.silent:
                self._management.sendto(answer, where)
