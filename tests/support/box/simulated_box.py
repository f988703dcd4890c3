"""The box in simulation: the files that the shell would read, between models of its neighbours.

::

    frames ─► receive buffer ─► rx ┌───────────────┐ c2h ─► trusts the size
    frames ◄─ transmit adapter ◄ tx│ box_250mhz.sv │h2c ◄── frames
                                   └───────────────┘

Verilator reads the text that the plugin has the shell include, so the port list is the shell's, and
resets go through the handshake of its configuration block.
"""

import ctypes
from collections.abc import Sequence
from ctypes import (
    POINTER,
    c_char_p,
    c_int,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

from afflux_hdl.contract.box_registers import box_counter_address, node_base
from afflux_hdl.opennic.parameters import BoxParameters
from afflux_hdl.opennic.plugin import instance
from afflux_sim.rtl.compile.cache import default_folder
from afflux_sim.rtl.compile.toolchain import find_toolchain
from afflux_sim.rtl.compile.verilator import Model, build_library
from afflux_sim.rtl.compile.verilog_cache import box_verilog
from afflux_sim.rtl.stimulus import BACK_TO_BACK, Stimulus
from afflux_sim.rtl.verilated_model import AccessRefused, SimulationError

__all__ = ["OKAY", "SLVERR", "Beat", "BoxBeats", "Received", "SimulatedBox", "beats_of"]

HERE = Path(__file__).parent
BOX = Model("box_250mhz", "VBox", HERE / "box_shim.cpp")
BYTES = 64
OKAY, SLVERR = 0, 2
QUIET_CYCLES = 700
"""More than a frame may rest inside, unless its link is down."""


class BoxBeats(ctypes.Structure):
    """`Beat` of the shim."""

    _fields_ = (
        ("data", c_uint8 * BYTES),
        ("keep", c_uint64),
        ("size", c_uint16),
        ("src", c_uint16),
        ("dst", c_uint16),
        ("last", c_uint16),
        ("cycle", c_uint64),
    )


@dataclass(frozen=True)
class Beat:
    """One beat that has left the box."""

    data: bytes
    keep: int
    size: int
    src: int
    dst: int
    last: bool
    cycle: int


@dataclass(frozen=True)
class Received:
    """A frame as a neighbour has it.

    Attributes:
        frame: Its bytes.
        src, dst: The fields that came with it.
        first, end: Cycles of its first and last beat.
    """

    frame: bytes
    src: int
    dst: int
    first: int
    end: int


def beats_of(
    frame: bytes, *, size: int | None = None, src: int = 0, dst: int = 0
) -> list[BoxBeats]:
    """Return a frame's beats, as a neighbour sends them."""
    beats = []
    for at in range(0, len(frame), BYTES):
        part = frame[at : at + BYTES]
        beat = BoxBeats(keep=(1 << len(part)) - 1, size=len(frame) if size is None else size)
        beat.src, beat.dst, beat.last = src, dst, at + BYTES >= len(frame)
        # Null bytes have any value.
        ctypes.memmove(beat.data, part.ljust(BYTES, b"\xee"), BYTES)
        beats.append(beat)
    return beats


_PROTOTYPES = {
    "open": (c_void_p, []),
    "close": (None, [c_void_p]),
    "error": (c_char_p, [c_void_p]),
    "seed": (None, [c_void_p, c_uint64]),
    "feed": (None, [c_void_p, c_size_t, POINTER(BoxBeats), c_size_t]),
    "source": (None, [c_void_p, c_size_t, c_uint64, c_size_t]),
    "sink": (None, [c_void_p, c_size_t, c_uint64]),
    "run": (c_int, [c_void_p, c_uint64, c_uint64]),
    "pulse": (c_int, [c_void_p, c_uint32, c_uint32]),
    "ask": (c_int, [c_void_p, c_uint32, c_uint32, c_uint32]),
    "answer": (c_int, [c_void_p, POINTER(c_uint32), POINTER(c_uint32)]),
    "output": (c_size_t, [c_void_p, c_size_t, POINTER(POINTER(BoxBeats))]),
    "clear_output": (None, [c_void_p, c_size_t]),
    "stalls": (c_uint64, [c_void_p, c_size_t]),
    "dropped": (c_uint64, [c_void_p, c_size_t]),
    "cycles": (c_uint64, [c_void_p]),
    "done": (c_uint32, [c_void_p]),
}


@cache
def _library(parameters: BoxParameters, plugin: str | None, planted: str | None) -> ctypes.CDLL:
    folder = default_folder()
    verilog = planted or box_verilog(folder, parameters)
    shell = (HERE / "shell.sv").read_text()
    for mark, text in (
        ("@PORTS@", str(parameters.ports)),
        ("@FUNCTIONS@", str(parameters.functions)),
        ('`include "box_250mhz_address_map_inst.vh"', ""),
        ('`include "user_plugin_250mhz_inst.vh"', plugin or instance(parameters)),
    ):
        assert mark in shell
        shell = shell.replace(mark, text)
    # No test runs for as long as a fast model takes to compile.
    text = shell + verilog
    path = build_library(find_toolchain(), folder, text, 8 * BYTES, model=BOX, quick=True)
    library = ctypes.CDLL(str(path))
    for function, (result, arguments) in _PROTOTYPES.items():
        bound = getattr(library, f"box_{function}")
        bound.restype, bound.argtypes = result, arguments
    return library


class SimulatedBox:
    """A box that has been through the shell's reset at power-up.

    Streams have numbers: `rx(p)` and `h2c(f)` into it, `tx(p)` and `c2h(f)` out of it. As an engine
    of the scenarios it is its port 0 and its node 0.

    Args:
        parameters: Its sizes.
        plugin: The text that the shell includes; `None`: that of the plugin.
        planted: Verilog of a box with a bug.
        powered: Go through the reset.
    """

    def __init__(
        self,
        parameters: BoxParameters,
        *,
        plugin: str | None = None,
        planted: str | None = None,
        powered: bool = True,
    ) -> None:
        self.parameters = parameters
        self._library = _library(parameters, plugin, planted)
        self._box = self._library.box_open()
        if powered:
            self.reset(0xFFFF, whole=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._library.box_close(self._box)

    def rx(self, port: int = 0) -> int:
        return port

    def h2c(self, function: int = 0) -> int:
        return self.parameters.ports + function

    def tx(self, port: int = 0) -> int:
        return port

    def c2h(self, function: int = 0) -> int:
        return self.parameters.ports + function

    def _check(self, status: int) -> None:
        if status:
            raise SimulationError(self._library.box_error(self._box).decode())

    def feed(self, stream: int, beats: Sequence[BoxBeats]) -> None:
        """Put beats behind those that wait to go into a stream."""
        self._library.box_feed(self._box, stream, (BoxBeats * len(beats))(*beats), len(beats))

    def from_network(self, frames: Sequence[bytes], port: int = 0) -> None:
        """Put frames before a port, as the adapter sends them."""
        for frame in frames:
            self.feed(self.rx(port), beats_of(frame, src=1 << 6 + port))

    def from_host(self, frames: Sequence[bytes], function: int = 0, dst: int = 0) -> None:
        """Put frames before a stream of the host, as the DMA sends them."""
        for frame in frames:
            self.feed(self.h2c(function), beats_of(frame, src=1 << function, dst=dst))

    def pace(self, stream: int, *, gaps: float = 0.0, depth: int = 0) -> None:
        """Say how beats arrive: a share of cycles without; into a buffer of `depth` beats."""
        self._library.box_source(self._box, stream, round(gaps * 2**32), depth)

    def take(self, stream: int, share: float) -> None:
        """Say in which share of cycles a beat of a stream out of the box is taken."""
        self._library.box_sink(self._box, stream, round(share * 2**32))

    def seed(self, seed: int) -> None:
        self._library.box_seed(self._box, seed % 2**64)

    def run(self, cycles: int) -> None:
        """Run for so many cycles of the streams' clock."""
        self._check(self._library.box_run(self._box, cycles, 0))

    def settle(self, cycles: int = 1_000_000, quiet: int = QUIET_CYCLES) -> None:
        """Run until nothing has moved for a while."""
        self._check(self._library.box_run(self._box, cycles, quiet))

    def beats(self, stream: int) -> list[Beat]:
        """Return the beats that have left on a stream since the last call."""
        found = POINTER(BoxBeats)()
        count = self._library.box_output(self._box, stream, ctypes.byref(found))
        beats = [
            Beat(bytes(b.data), b.keep, b.size, b.src, b.dst, bool(b.last), b.cycle)
            for b in found[:count]
        ]
        self._library.box_clear_output(self._box, stream)
        return beats

    def to_network(self, port: int = 0) -> list[Received]:
        """Return what the transmit adapter of a port has sent since the last call.

        It looks at `dst` in a frame's first beat, and drops the frame unless its own bit is set;
        it makes the last beat's `keep` out of `size`, and sends what that says.
        """
        sent: list[Received] = []
        frame, wanted, first = b"", False, 0
        inside = False
        for beat in self.beats(self.tx(port)):
            if not inside:
                frame, wanted, first = b"", bool(beat.dst >> 6 + port & 1), beat.cycle
            left = beat.size % BYTES
            # All ones but in the last beat, as AXI4-Stream's users here have it.
            assert beat.last or beat.keep == 2**BYTES - 1
            frame += beat.data[:left] if beat.last and left else beat.data
            inside = not beat.last
            if beat.last and wanted:
                assert beat.keep == (1 << (left or BYTES)) - 1
                sent.append(Received(frame, beat.src, beat.dst, first, beat.cycle))
        assert not inside, "a frame without its end"
        return sent

    def to_host(self, function: int = 0) -> list[Received]:
        """Return what the host has received on one of its streams: as many bytes as `size` says."""
        received: list[Received] = []
        frame, first, announced = b"", 0, 0
        for beat in self.beats(self.c2h(function)):
            if not frame:
                first, announced = beat.cycle, beat.size
            frame += beat.data
            if beat.last:
                # The DMA stops for good if a packet has another length than announced.
                assert -(-announced // BYTES) == len(frame) // BYTES, "length mismatch"
                received.append(Received(frame[:announced], beat.src, beat.dst, first, beat.cycle))
                frame = b""
        assert not frame, "a frame without its end"
        return received

    def stalls(self, stream: int) -> int:
        """Return in how many cycles a beat into the box has waited."""
        return int(self._library.box_stalls(self._box, stream))

    def dropped(self, stream: int) -> int:
        """Return how many frames the buffer before a stream has dropped."""
        return int(self._library.box_dropped(self._box, stream))

    @property
    def cycles(self) -> int:
        return int(self._library.box_cycles(self._box))

    def pulse(self, modules: int, *, whole: bool = False) -> None:
        """Ask for resets, and do not wait for them."""
        self._check(self._library.box_pulse(self._box, modules, whole))

    def reset(self, modules: int = 1, *, whole: bool = False, limit: int = 2000) -> None:
        """Reset modules, as the shell's configuration block does, and wait until all are done.

        Raises:
            SimulationError: If the bits of a module stay 0: the shell would wait for ever.
        """
        self.pulse(modules, whole=whole)
        everything = 0x1FFFF
        for _ in range(0, limit, 20):
            self.run(20)
            if self.done == everything:
                return
        raise SimulationError(f"reset does not end: {self.done ^ everything:#x} is not done")

    @property
    def done(self) -> int:
        """`mod_rst_done`, and `box_rst_done` above it."""
        return int(self._library.box_done(self._box))

    def ask(self, address: int, value: int | None = None) -> None:
        """Begin a read, or a write of `value`."""
        write = value is not None
        self._check(self._library.box_ask(self._box, write, address, value or 0))

    def answer(self) -> tuple[int, int]:
        """Wait for the end of the access that has begun; return its response and data."""
        response, data = c_uint32(), c_uint32()
        asked = self._library.box_answer(self._box, ctypes.byref(response), ctypes.byref(data))
        self._check(asked)
        return response.value, data.value

    def read(self, address: int, node: int = 0) -> int:
        """Return a register of a node."""
        self.ask(node_base(node) + address)
        return self._okay(address)

    def write(self, address: int, value: int, node: int = 0) -> None:
        """Write a register of a node."""
        self.ask(node_base(node) + address, value)
        self._okay(address)

    def counter(self, name: str, index: int = 0) -> int:
        """Return a counter of the box: of a port, or of a stream to and from the host."""
        address = box_counter_address(name, index, ports=self.parameters.ports)
        self.ask(address)
        return self._okay(address)

    def _okay(self, address: int) -> int:
        response, data = self.answer()
        if response != OKAY:
            raise AccessRefused(f"access to {address:#x} was answered {response}")
        return data

    def play(
        self,
        frames: Sequence[bytes],
        stimulus: Stimulus = BACK_TO_BACK,
        mac_errors: Sequence[bool] | None = None,
    ) -> list[bytes]:
        """Play frames into port 0 as into an engine. Marked ones end in the adapter."""
        marks = mac_errors or [False] * len(frames)
        self.seed(stimulus.seed)
        self.pace(self.rx(), gaps=stimulus.gap_share)
        self.take(self.tx(), stimulus.ready_share)
        self.from_network([each for each, marked in zip(frames, marks, strict=True) if not marked])
        self.settle()
        return [each.frame for each in self.to_network()]
