"""An engine that is in the network itself: its controller sees registers, no packet of a job.

The engine is in a node (`docs/node.md`). There are two kinds of boards:

* In a host: the node is between a network port and an interface of the host. Frames that are not
  for the engine pass to that interface, whose MAC and IPv4 address are the node's own: so the
  control channel is reached at the address of the engine.
* Apart: the board has no host, but an address of its own, from its settings or by DHCP. Its
  registers are reached through the network by its controller, and the control channel, which is
  the controller's, states the board's address to workers.
"""

import contextlib
import fcntl
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable

from afflux_drivers.control.tickets import ParentJob
from afflux_drivers.device.udp import DeviceRestarted
from afflux_drivers.errors import AffluxError
from afflux_drivers.registers import Registers
from afflux_hdl.contract import registers

__all__ = ["Board", "BoardFailed", "BoardPath", "interface_mac"]

_log = logging.getLogger("afflux")

_LOOK_EVERY_S = 1.0
_SILENT_S = 60.0
"""For as long a board that is apart may not answer, before its controller gives up."""

_IFNAME_BYTES = 16
# Linux's numbers, missing from the socket module.
_SIOCGIFADDR = 0x8915
_SIOCGIFHWADDR = 0x8927
_ETHERNET = 1


class BoardFailed(RuntimeError):
    """The registers of a board cannot be reached, or do not read as a node's do."""


class Board:
    """A node in a network. Its engine takes and sends frames without its host.

    Args:
        port: Its registers; closed by `close`.
        name: Its kind.
        queue: Full packets that the way to it holds, for all jobs together. A switch's port has
            a buffer for some hundreds; the node itself takes them as fast as its port does.
        apart: Whether it has an address of its own, and this host none of its ports.

    Attributes:
        name, queue, apart: As given.

    Raises:
        BoardFailed: There is no node behind these registers.
    """

    def __init__(self, port: Registers, name: str, queue: int, *, apart: bool = False) -> None:
        self._port = port
        self.name, self.queue, self.apart = name, queue, apart
        self.check()

    def read(self, address: int) -> int:
        """Read a 32-bit register.

        Raises:
            BoardFailed: It cannot be reached.
        """
        try:
            return self._port.read(address)
        except (OSError, AffluxError) as error:
            raise BoardFailed(f"register {address:#05x} of the board: {error}") from error

    def write(self, address: int, value: int) -> None:
        """Write a 32-bit register.

        Raises:
            BoardFailed: It cannot be reached.
            WriteRefused: It refuses the value; nothing is written then.
        """
        try:
            self._port.write(address, value)
        except registers.WriteRefused:
            raise
        except (OSError, AffluxError) as error:
            raise BoardFailed(f"register {address:#05x} of the board: {error}") from error

    @property
    def cycles(self) -> int | None:
        """Clock cycles of a simulated engine; None for one in hardware, which counts none."""
        cycles: int | None = getattr(self._port, "cycles", None)
        return cycles

    def own_address(self) -> tuple[str, int]:
        """Return the IPv4 address of a board that is apart, and the UDP port of its first job.

        Raises:
            BoardFailed: It has none.
        """
        address, port = (
            self.read(registers.address_of(name)) for name in ("local_address", "local_port")
        )
        if address == 0 or port == 0:
            raise BoardFailed(
                f"the board has no address yet: local_address reads {address:#010x}, local_port "
                f"{port}; its settings or DHCP must give it one (afflux device configure)"
            )
        return socket.inet_ntoa(address.to_bytes(4, "big")), port

    def close(self) -> None:
        """Close the registers."""
        self._port.close()

    def check(self) -> None:
        """Look whether the node is there: of one that is gone, every register reads as ones.

        Raises:
            BoardFailed: It is not.
        """
        found = self.read(registers.node_address_of("node_identity"))
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

    Attributes:
        look: Called while the board is there, about once a second, with the lock held.
    """

    def __init__(self, board: Board, lock: threading.Lock) -> None:
        self._board, self._lock = board, lock
        self._stopping = threading.Event()
        self.look: Callable[[], None] = lambda: None

    def serve(self) -> None:
        """Watch the board until `stop` is called.

        Raises:
            BoardFailed: It is gone: at once if what is there is no node, or was reset; if it is
                apart, and does not answer, when that has lasted, as a switch on the way may be
                starting.
        """
        heard = time.monotonic()
        while not self._stopping.wait(_LOOK_EVERY_S):
            try:
                with self._lock:
                    self._board.check()
                    self.look()
            except BoardFailed as error:
                silent_s = time.monotonic() - heard
                # Something else is there. Or of a board that was reset the settings are left, but
                # no job. All else may pass: no answer, or others who keep it busy.
                final = error.__cause__ is None or isinstance(error.__cause__, DeviceRestarted)
                if final or not self._board.apart or silent_s > _SILENT_S:
                    raise
                _log.warning("the board has been silent for %.0f s: %s", silent_s, error)
            else:
                heard = time.monotonic()

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
