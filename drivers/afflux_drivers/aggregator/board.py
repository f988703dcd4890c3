"""An engine that is in the network itself: its host sees registers, and the frames of others.

The engine is in a node (`docs/node.md`), between a network port and an interface of the host. Its
packets never reach the host. What is not for the engine passes to that interface, whose MAC and
IPv4 address are the node's own: so the control channel is reached at the address of the engine.
"""

import contextlib
import fcntl
import socket
import struct
import threading
from typing import Protocol

from afflux_drivers.control.tickets import ParentJob
from afflux_hdl.contract import registers

__all__ = ["Board", "BoardFailed", "BoardPath", "RegisterPort", "interface_mac"]

_LOOK_EVERY_S = 1.0
_IFNAME_BYTES = 16
# Linux's numbers, missing from the socket module.
_SIOCGIFADDR = 0x8915
_SIOCGIFHWADDR = 0x8927
_ETHERNET = 1


class BoardFailed(RuntimeError):
    """The registers of a board do not read as a node's do."""


class RegisterPort(Protocol):
    """The registers of a node, as its host reaches them. Thread-safe."""

    def read(self, address: int) -> int:
        """Read a 32-bit register; see `afflux_hdl.contract.registers`."""

    def write(self, address: int, value: int) -> None:
        """Write a 32-bit register."""

    def close(self) -> None:
        """Free what is held."""


class Board:
    """A node in a network. Its engine takes and sends frames without its host.

    Args:
        port: Its registers; closed by `close`.
        name: Its kind.
        queue: Full packets that the way to it holds, for all jobs together. A switch's port has
            a buffer for some hundreds; the node itself takes them as fast as its port does.

    Attributes:
        name, queue: As given.

    Raises:
        BoardFailed: There is no node behind these registers.
    """

    def __init__(self, port: RegisterPort, name: str, queue: int) -> None:
        self._port = port
        self.name, self.queue = name, queue
        self.check()

    def read(self, address: int) -> int:
        """Read a 32-bit register."""
        return self._port.read(address)

    def write(self, address: int, value: int) -> None:
        """Write a 32-bit register."""
        self._port.write(address, value)

    def close(self) -> None:
        """Close the registers."""
        self._port.close()

    def check(self) -> None:
        """Look whether the node is there: of one that is gone, every register reads as ones.

        Raises:
            BoardFailed: It is not.
        """
        found = self._port.read(registers.node_address_of("node_identity"))
        if found != registers.NODE_IDENTITY:
            raise BoardFailed(
                f"there is no node behind these registers: node_identity reads {found:#010x}, not "
                f"{registers.NODE_IDENTITY:#010x}"
            )


class BoardPath:
    """The data path of a board: none that passes here. A `DataPath`.

    Args:
        board: The board.
        lock: Held while it is looked at.
    """

    def __init__(self, board: Board, lock: threading.Lock) -> None:
        self._board, self._lock = board, lock
        self._stopping = threading.Event()

    def serve(self) -> None:
        """Watch the board until `stop` is called; raise what it raises when it fails."""
        while not self._stopping.wait(_LOOK_EVERY_S):
            with self._lock:
                self._board.check()

    def stop(self) -> None:
        """Make `serve` return soon. Thread-safe."""
        self._stopping.set()

    def wake(self) -> None:
        """Do nothing: the board sends by itself."""

    def open(self, job: int, parent: ParentJob) -> None:
        """Do nothing: no port of this host is meant."""

    def close(self, job: int) -> None:
        """Do nothing: nothing was opened."""

    def close_all(self) -> None:
        """Do nothing: nothing is held."""


def interface_mac(address: str) -> int:
    """Return the MAC address of this host's Ethernet interface that has an IPv4 address.

    Raises:
        OSError: If there is none; names the address.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack(f"{_IFNAME_BYTES}s16x", name.encode())
            # Interfaces without an address, or gone meanwhile.
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, request)
                if socket.inet_ntoa(answer[20:24]) != address:
                    continue
                answer = fcntl.ioctl(probe, _SIOCGIFHWADDR, request)
                if int.from_bytes(answer[16:18], "little") == _ETHERNET:
                    return int.from_bytes(answer[18:24], "big")
    raise OSError(
        f"no Ethernet interface of this host has the address {address}: the one behind the board's "
        f"host port must have it"
    )
