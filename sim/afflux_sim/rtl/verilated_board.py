"""The Verilated board: whole frames at the pins of its RGMII ports, and nothing else.

::

    with VerilatedBoard(BoardParameters(node=…), Settings(…)) as board:
        board.send([arp_request])
        board.run(20e-6)
        (reply,) = board.receive()

It is an appliance (`hdl/afflux_hdl/boards`) from RGMII pins to RGMII pins. Its clocks drift against
one another. Registers are reached as on a board, by management packets through the pins.
Built on first use, as `afflux_sim.rtl.verilated` is.
"""

import ctypes
import secrets
import tempfile
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from enum import IntFlag
from functools import cache
from pathlib import Path
from typing import Self

from afflux_hdl.contract.management import Settings
from afflux_hdl.node.parameters import NodeParameters
from afflux_sim.rtl.compile.cache import default_folder
from afflux_sim.rtl.compile.settings_file import settings_from_file, settings_lines
from afflux_sim.rtl.compile.toolchain import find_toolchain
from afflux_sim.rtl.compile.verilator import BOARD, build_library
from afflux_sim.rtl.compile.verilog_cache import board_verilog
from afflux_sim.rtl.verilated_model import ModelHandle

__all__ = [
    "BoardClocks",
    "BoardParameters",
    "BoardStatistics",
    "Fault",
    "VerilatedBoard",
    "verilog_of",
]

_FS = 10**15
_PORTS_MAX = 2


class Fault(IntFlag):
    """The faults of a frame on its way in."""

    NONE = 0
    WRONG_FCS = 1
    """A bit of its check sequence is wrong."""
    SYMBOL_ERROR = 2
    """The PHY reports an error at its middle."""
    NO_PADDING = 4
    """It stays as short as it is."""


@dataclass(frozen=True, kw_only=True)
class BoardClocks:
    """The clocks of a board. Each has an oscillator of its own, hence any phase.

    Attributes:
        engine_hz: The engine's clock, `sync`.
        receive_ppm: By how much the link partner's clock, from which RXC is made, is faster than
            125 MHz. Ethernet allows ±100.
        second_receive_ppm: The same of the link partner at the second port.
        transmit_ppm: The same of the board's own 125 MHz.
        phases: Where in its first period each clock begins, 0 to 1: engine, transmit, receive.
        second_phase: The same of what is received at the second port.
        seed: Of the bits of no clock, from which the management draws its session.
    """

    engine_hz: float = 50e6
    receive_ppm: float = 60.0
    second_receive_ppm: float = -70.0
    transmit_ppm: float = -40.0
    phases: tuple[float, float, float] = (0.1, 0.37, 0.73)
    second_phase: float = 0.52
    seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class BoardParameters:
    """The sizes of a simulated board.

    Attributes:
        node: Its node; the bus has 32 bits.
        clock_hz: The engine's clock, for the management's seconds.
        entropy_blocks: Blocks of 64 samples that its session is drawn from.
        entropy_spacing_bits: Binary logarithm of the cycles from sample to sample.
    """

    node: NodeParameters
    clock_hz: int = 50_000_000
    entropy_blocks: int = 8
    entropy_spacing_bits: int = 0


class _Clocks(ctypes.Structure):
    """`Clocks` of the shim."""

    _fields_ = (
        ("engine_fs", c_uint64),
        ("transmit_fs", c_uint64),
        ("receive_fs", c_uint64 * _PORTS_MAX),
        ("engine_phase_fs", c_uint64),
        ("transmit_phase_fs", c_uint64),
        ("receive_phase_fs", c_uint64 * _PORTS_MAX),
        ("seed", c_uint64),
    )


@dataclass(frozen=True)
class BoardStatistics:
    """The traffic at the pins of a simulated board since it was opened, at all ports together.

    Attributes:
        time_fs: Time that has passed, in femtoseconds.
        engine_cycles, transmit_cycles, receive_cycles: Cycles of each clock, of the last at the
            first port.
        frames_in: Frames given to `send`.
        frames_out: Frames that have come out, good or not.
        bytes_in: Bytes in which RX_DV was set, preambles and check sequences included.
        bytes_out: The same of TX_EN.
        spoilt: Frames that the board has spoilt on their way out: TX_ER, or a wrong check sequence.
        malformed: Frames out that no MAC may send: without a whole preamble, or too short.
        least_gap: The least number of bytes between two frames out of one port.
        overflowed: Cycles in which the MAC had no room for a frame from the network.
        resets: Resets that the controller has ordered.
        quiet_fs: Time since anything went in or out, or a request was carried out.
        waiting: Bytes of frames and gaps that are still to go in.
        pins: Bit 0: configured, bit 1: fault, bit 2: link.
    """

    time_fs: int
    engine_cycles: int
    transmit_cycles: int
    receive_cycles: int
    frames_in: int
    frames_out: int
    bytes_in: int
    bytes_out: int
    spoilt: int
    malformed: int
    least_gap: int
    overflowed: int
    resets: int
    quiet_fs: int
    waiting: int
    pins: int

    @property
    def configured(self) -> bool:
        """Whether the board has an address."""
        return bool(self.pins & 1)

    @property
    def fault(self) -> bool:
        """Whether its settings are damaged, or its source of random bits is stuck."""
        return bool(self.pins & 2)

    @property
    def link(self) -> bool:
        """Whether a PHY of it has reported a link at 1 Gbit/s."""
        return bool(self.pins & 4)


class _Statistics(ctypes.Structure):
    """`Statistics` of the shim."""

    _fields_ = tuple((name, c_uint64) for name in BoardStatistics.__dataclass_fields__)


_PROTOTYPES = {
    "open": (c_void_p, [POINTER(_Clocks), c_char_p]),
    "close": (None, [c_void_p]),
    "error": (c_char_p, [c_void_p]),
    "send": (c_int, [c_void_p, c_size_t, c_char_p, *([POINTER(c_uint32)] * 3), c_size_t]),
    "set_link": (c_int, [c_void_p, c_size_t, c_int]),
    "run": (c_int, [c_void_p, c_uint64, c_uint64]),
    "output": (
        c_size_t,
        [c_void_p, c_size_t, POINTER(POINTER(c_uint8)), POINTER(POINTER(c_uint32))],
    ),
    "clear_output": (None, [c_void_p, c_size_t]),
    "statistics": (None, [c_void_p, POINTER(_Statistics)]),
}


@cache
def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(library, f"afflux_board_{name}")
        function.restype = result
        function.argtypes = arguments
    return library


class VerilatedBoard(ModelHandle):
    """A board in simulation, driven by frames on its cables.

    Attributes:
        settings: As given.
        ports: Its network ports.

    Args:
        parameters: The board's sizes.
        settings: Addresses, ports and key: patched into it, as into a bitstream.
        clocks: Its clocks.
        cache_folder: Where builds are kept; `None`: see `build.cache.default_folder`.

    Raises:
        ToolchainError: If Verilator or a C++ compiler is missing.
        BuildError: If the build fails; the message names the log.
    """

    kind = "board"
    prefix = "afflux_board"

    def __init__(
        self,
        parameters: BoardParameters,
        settings: Settings,
        clocks: BoardClocks | None = None,
        cache_folder: Path | None = None,
    ) -> None:
        folder = cache_folder or default_folder()
        # Before the Verilog: a missing compiler is noticed sooner than that is made.
        toolchain = find_toolchain()
        bus_bits = parameters.node.engine.bus_bits
        path = build_library(
            toolchain, folder, verilog_of(parameters, folder), bus_bits, model=BOARD
        )
        self.ports = parameters.node.engine.ports
        self._start(path, settings, clocks or BoardClocks(engine_hz=parameters.clock_hz))

    @classmethod
    def from_library(
        cls, path: Path, settings: Settings, clocks: BoardClocks, *, ports: int = 1
    ) -> Self:
        """Make a board from what `build.verilator.build_library` has built for so many ports."""
        self = cls.__new__(cls)
        self.ports = ports
        self._start(path, settings, clocks)
        return self

    def _start(self, path: Path, settings: Settings, clocks: BoardClocks) -> None:
        self.settings = settings
        if self.ports > _PORTS_MAX:
            raise ValueError(f"a simulated board has up to {_PORTS_MAX} ports, not {self.ports}")
        received = (clocks.receive_ppm, clocks.second_receive_ppm)
        transmit, *receive = (
            round(8e6 / (1 + ppm * 1e-6)) for ppm in (clocks.transmit_ppm, *received)
        )
        engine = round(_FS / clocks.engine_hz)
        phases = [
            round(period * share)
            for period, share in zip(
                (engine, transmit, *receive), (*clocks.phases, clocks.second_phase), strict=True
            )
        ]
        seed = secrets.randbits(64) if clocks.seed is None else clocks.seed
        # Others must not read it: it has the key.
        with tempfile.NamedTemporaryFile("w", suffix=".hex") as file:
            file.write(settings_lines(settings.to_bytes()))
            file.flush()
            name = file.name.encode()
            pair = c_uint64 * _PORTS_MAX
            given = _Clocks(
                *(engine, transmit, pair(*receive)), *phases[:2], pair(*phases[2:]), seed
            )
            self._open(_load(path), path, given, name)

    def send(
        self,
        frames: Sequence[bytes],
        *,
        faults: Sequence[Fault] | None = None,
        gaps: Sequence[int] | None = None,
        port: int = 0,
    ) -> None:
        """Put frames on the wire to the board, behind those that are still on it.

        Args:
            frames: Ethernet frames, without preamble and frame check sequence.
            faults: The fault of each; None: nothing.
            gaps: Bytes of silence behind each; None: 12, the least that Ethernet allows.
            port: By which they come.

        Raises:
            ValueError: There are not as many faults or gaps as frames, or there is no such port.
        """
        self._check_port(port)
        count = len(frames)
        if any(each is not None and len(each) != count for each in (faults, gaps)):
            raise ValueError(f"there must be a fault and a gap for each of {count} frames")
        lengths = (c_uint32 * count)(*map(len, frames))
        marks = None if faults is None else (c_uint32 * count)(*faults)
        silences = None if gaps is None else (c_uint32 * count)(*gaps)
        with self._lock:
            self._check(
                self._library.afflux_board_send(
                    self._use(), port, b"".join(frames), lengths, marks, silences, count
                )
            )

    def run(self, seconds: float, *, until_quiet: float = 0.0) -> None:
        """Let time pass on the board.

        Args:
            seconds: So much of it.
            until_quiet: End before, when nothing has gone in or out for so many seconds; 0: do not.

        Raises:
            SimulationError: If the model breaks a rule of its pins.
        """
        duration, quiet = round(seconds * _FS), round(until_quiet * _FS)
        with self._lock:
            self._check(self._library.afflux_board_run(self._use(), duration, quiet))

    def receive(self, port: int = 0) -> list[bytes]:
        """Return the good frames that have come out since the last call, without check sequences.

        Short ones are as long as the board has filled them up, 60 bytes.

        Args:
            port: By which they have left.

        Raises:
            ValueError: There is no such port.
        """
        self._check_port(port)
        with self._lock:
            return self._take_frames(port)

    def set_link(self, up: bool, port: int = 0) -> None:
        """Plug a cable in or pull it out: what the PHY of a port reports between frames.

        Frames on the wire to the board meanwhile stay there.

        Raises:
            ValueError: There is no such port.
        """
        self._check_port(port)
        with self._lock:
            self._check(self._library.afflux_board_set_link(self._use(), port, up))

    def _check_port(self, port: int) -> None:
        if not 0 <= port < self.ports:
            raise ValueError(f"a board with {self.ports} network ports has no port {port}")

    def statistics(self) -> BoardStatistics:
        """Return what has passed the pins so far."""
        counts = _Statistics()
        with self._lock:
            self._library.afflux_board_statistics(self._use(), ctypes.byref(counts))
        fields = BoardStatistics.__dataclass_fields__
        return BoardStatistics(**{name: getattr(counts, name) for name in fields})


def verilog_of(parameters: BoardParameters, folder: Path) -> str:
    """Return the Verilog of a board, from the cache in `folder` if it is there.

    Raises:
        BuildError: If it cannot be generated.
    """
    options = {
        "clock_hz": parameters.clock_hz,
        "entropy_blocks": parameters.entropy_blocks,
        "entropy_spacing_bits": parameters.entropy_spacing_bits,
    }
    return settings_from_file(board_verilog(folder, parameters.node, options))
