"""A Verilated board behind UDP sockets of this machine: what is sent to them comes to its pins.

::

    workers     ─► engine's socket     ─┐                    ┌─ RXC, RXD, RX_CTL ─►┐
                                        ├─ frames ─ MAC, PHY ┤                     ├ the board
    controller  ─► management's socket ─┘                    └─ TXC, TXD, TX_CTL ◄─┘

Each datagram becomes a frame with preamble and check sequence, at 1 Gbit/s with the least gap; each
frame that comes out whole becomes a datagram again. The sockets are at 127.0.0.2, the address in
the board's settings; its controller is 127.0.0.1, as which the kernel sends there from any program
of this host, so that the key alone tells the controller from others.

The board's time passes only while there is something to do. One that waits for nothing costs
nothing; a millisecond of its time takes some hundred of this machine's.
"""

import contextlib
import os
import secrets
import select
import socket
import struct
import threading

from afflux_drivers.device.udp import UdpRegisters
from afflux_drivers.frames import FRAME_HEADER, FrameMaker, datagram_of, destination_of, mac_of
from afflux_hdl.contract import registers
from afflux_hdl.contract.management import Settings
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.node.parameters import NodeParameters
from afflux_sim.rtl.verilated_board import BoardParameters, VerilatedBoard
from afflux_sim.rtl.verilated_model import SimulationError

__all__ = [
    "ADDRESS",
    "SIZES",
    "BoardInProcess",
    "SimulatedAppliance",
    "board_parameters",
    "board_settings",
    "open_board_in_process",
]

ADDRESS = "127.0.0.2"
_CONTROLLER = "127.0.0.1"
_NUMBER = int.from_bytes(socket.inet_aton(ADDRESS), "big")

SIZES = {"workers": 8, "lanes": 5, "jobs": 2, "slots": 16}
"""Those of the smallest board that bitstreams are made for with several jobs."""

_LINK_TIMEOUT = 1 << 22
_BUFFER_BYTES = 2048

_SLICE_S = 10e-6
"""Of the board's time, in which 1,250 bytes pass each way; then sockets are looked at."""

_QUIET_S = 100e-6
"""Of the board's time without a frame in or out: it has nothing left to do. Its longest answer, to
a management request, takes 36 µs."""

_START_S = 5e-3
_WIRE_BYTES = 16 << 10
"""So much may wait to go in. Packets beyond that wait in the sockets, as in a switch."""

_SOCKET_BYTES = 4 << 20
_RECEIVE_BYTES = 2048
_BATCH = 8
_REGISTERS_S = 30.0
"""For an answer to a request: the machine may be busy with other things."""


def board_parameters(
    *,
    workers: int = SIZES["workers"],
    lanes: int = SIZES["lanes"],
    jobs: int = SIZES["jobs"],
    slots: int = SIZES["slots"],
    ports: int = 1,
) -> BoardParameters:
    """Return what a simulated board with an engine of this size is built for."""
    engine = Parameters(
        bus_bits=32,
        workers=workers,
        lanes=lanes,
        jobs=jobs,
        slots=slots,
        ports=ports,
        link_timeout=_LINK_TIMEOUT,
        ram_output_register=1,
    )
    return BoardParameters(
        node=NodeParameters(
            engine=engine, host_buffer_bytes=_BUFFER_BYTES, echo_buffer_bytes=_BUFFER_BYTES
        ),
    )


def board_settings(key: bytes) -> Settings:
    """Return the settings of a simulated board with this key."""
    return Settings(
        mac=int.from_bytes(mac_of(_NUMBER), "big"),
        address=ADDRESS,
        controller=_CONTROLLER,
        key=key,
        name="simulated",
    )


class SimulatedAppliance:
    """A board in simulation, which runs by itself in a thread.

    Args:
        board: The board, with settings as `board_settings` has them; closed by `close`.
        port: UDP port of this machine for the engine; 0 takes a free one.
        management_port: The same for the management.

    Attributes:
        address: Where its engine is, for workers.
        management: Where its management is.

    Raises:
        OSError: A port is not free; the message names it.
    """

    def __init__(self, board: VerilatedBoard, port: int = 0, management_port: int = 0) -> None:
        self._board = board
        # The board's number of it; the kernel's may be another.
        self._management_port = board.settings.port
        self._failure: Exception | None = None
        self._stopping = threading.Event()
        with contextlib.ExitStack() as held:
            held.callback(board.close)
            self._wake_file = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            held.callback(os.close, self._wake_file)
            self._sockets = []
            for number in (port, management_port):
                udp = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                udp.setblocking(False)
                udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BYTES)
                try:
                    udp.bind((ADDRESS, number))
                except OSError as error:
                    raise OSError(f"{ADDRESS}:{number}: {error.strerror}") from None
                self._sockets.append(udp)
            self._epoll = held.enter_context(contextlib.closing(select.epoll()))
            for file in (*(each.fileno() for each in self._sockets), self._wake_file):
                self._epoll.register(file, select.EPOLLIN)
            self.address, self.management = (each.getsockname() for each in self._sockets)
            self._makers = [
                FrameMaker(_NUMBER, number) for number in (self.address[1], self._management_port)
            ]
            # The board draws its session, and sets its address.
            board.run(_START_S, until_quiet=_START_S)
            self._held = held.pop_all()
        self._thread = threading.Thread(target=self._run, name="afflux-board", daemon=True)
        self._thread.start()

    @property
    def cycles(self) -> int:
        """Cycles of the engine's clock so far."""
        return self._board.statistics().engine_cycles

    def check(self) -> None:
        """Raise `SimulationError` if the simulation has failed."""
        if self._failure is not None:
            raise SimulationError(f"the simulated board has failed: {self._failure}")

    def close(self) -> None:
        """Stop."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(self._wake_file, 1)
        self._thread.join()
        self._held.close()

    def _run(self) -> None:
        try:
            self._move_frames()
        except Exception as error:
            # The next caller is told.
            self._failure = error

    def _move_frames(self) -> None:
        board = self._board
        while not self._stopping.is_set():
            statistics = board.statistics()
            frames = self._arrived() if statistics.waiting < _WIRE_BYTES else []
            if frames:
                board.send(frames)
            elif not statistics.waiting and statistics.quiet_fs > _QUIET_S * 1e15:
                self._epoll.poll()
                continue
            board.run(_SLICE_S)
            for frame in board.receive():
                self._deliver(frame)

    def _arrived(self) -> list[bytes]:
        """Return a frame for each datagram that has come, up to so many from each socket."""
        frames = []
        for udp, maker in zip(self._sockets, self._makers, strict=True):
            for _ in range(_BATCH):
                try:
                    payload, (host, port) = udp.recvfrom(_RECEIVE_BYTES)
                except BlockingIOError:
                    break
                except OSError:
                    # An earlier answer found no listener.
                    continue
                frames.append(maker.frame(payload, host, port))
        return frames

    def _deliver(self, frame: bytes) -> None:
        """Send what a frame carries, if it is a datagram of one of the board's ports."""
        if len(frame) < FRAME_HEADER.size or frame[12:15] != b"\x08\x00\x45" or frame[23] != 17:
            return
        source, length = struct.unpack_from(">H2xH", frame, 34)
        payload: bytes | memoryview | None
        if source == self._management_port:
            udp, payload = self._sockets[1], frame[42 : 34 + length]
        else:
            udp, payload = self._sockets[0], datagram_of(frame)
        if payload is None:
            return
        # Full buffers and vanished peers lose answers, as a network does.
        with contextlib.suppress(OSError):
            udp.sendto(payload, destination_of(frame))


class BoardInProcess:
    """A simulated board and its registers, which are reached by management packets all the same.

    `Registers` for a controller in the same process. The port of the engine's socket is made
    known to the board, whose settings have another one.

    Args:
        appliance: The board; closed by `close`.
        key: Of its management.

    Raises:
        DeviceFailed: Its registers cannot be reached.
    """

    def __init__(self, appliance: SimulatedAppliance, key: bytes) -> None:
        self.appliance = appliance
        try:
            self._registers = UdpRegisters(*appliance.management, key=key, timeout_s=_REGISTERS_S)
            self.write(registers.address_of("local_port"), appliance.address[1])
        except BaseException:
            appliance.close()
            raise

    @property
    def cycles(self) -> int:
        """Cycles of the engine's clock so far."""
        return self.appliance.cycles

    def read(self, address: int) -> int:
        """Read a 32-bit register.

        Raises:
            SimulationError: The simulation has failed.
            DeviceGone: The board does not answer.
        """
        self.appliance.check()
        return self._registers.read(address)

    def write(self, address: int, value: int) -> None:
        """Write a 32-bit register.

        Raises:
            SimulationError: The simulation has failed.
            WriteRefused: The board refuses it.
            DeviceGone: The board does not answer.
        """
        self.appliance.check()
        self._registers.write(address, value)

    def leave(self) -> None:
        """Close the registers only: the board runs on."""
        self._registers.close()

    def close(self) -> None:
        """Close the registers, and end the board."""
        self._registers.close()
        self.appliance.close()


def open_board_in_process(**sizes: int) -> BoardInProcess:
    """Make a simulated board whose engine has this size.

    Raises:
        ToolchainError: If Verilator or a C++ compiler is missing.
        BuildError: If the build fails; the message names the log.
        DeviceFailed: Its registers cannot be reached.
    """
    key = secrets.token_bytes(16)
    board = VerilatedBoard(board_parameters(**sizes), board_settings(key))
    return BoardInProcess(SimulatedAppliance(board), key)
