"""A Verilated engine with two network ports, which says of each frame by which ones it has left."""

import ctypes
import hashlib
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_size_t, c_uint8, c_void_p
from pathlib import Path
from typing import Self

from afflux_hdl.engine.parameters import Parameters
from afflux_sim.rtl.compile.cache import default_folder
from afflux_sim.rtl.compile.toolchain import find_toolchain
from afflux_sim.rtl.compile.verilator import ENGINE, Model, build_library
from afflux_sim.rtl.compile.verilog_cache import engine_verilog
from afflux_sim.rtl.shim_binding import load
from afflux_sim.rtl.stimulus import BACK_TO_BACK, Stimulus
from afflux_sim.rtl.verilated import VerilatedEngine
from afflux_sim.rtl.verilated_model import SimulationError
from tests.support.port_rules import PortRules, source_port

__all__ = [
    "EVERY",
    "PORTS",
    "ComingFrame",
    "PortedEngine",
    "SentFrame",
    "WrongPort",
    "build_ported",
]

PORTED = Model("afflux_engine", "VAffluxEngine", Path(__file__).with_name("ported_shim.cpp"))
PORTS = 2
EVERY = frozenset(range(PORTS))


class WrongPort(SimulationError):
    """A frame has left by a port that it is not for, or not by one that it is for."""


class ComingFrame(bytes):
    """A frame that comes by a certain port, wherever its sender sits.

    Attributes:
        port: By which it comes.
    """

    port: int

    @classmethod
    def by(cls, frame: bytes, port: int) -> Self:
        """Return a frame that comes by this port."""
        self = cls(frame)
        self.port = port
        return self


class SentFrame(bytes):
    """A frame that has left. It equals its bytes; another frame that has left, by its ports too.

    Attributes:
        ports: By which it has left.
    """

    ports: frozenset[int]

    @classmethod
    def by(cls, frame: bytes, mask: int) -> Self:
        """Return a frame that has left by the ports of a mask."""
        self = cls(frame)
        self.ports = frozenset(port for port in range(8) if mask >> port & 1)
        return self

    def __eq__(self, other: object) -> bool:
        alike = not isinstance(other, SentFrame) or self.ports == other.ports
        return alike and bytes(self) == other

    __hash__ = bytes.__hash__


def build_ported(parameters: Parameters, verilog: str | None = None) -> Path:
    """Return the library of an engine, or of what stands for it, that `PortedEngine` opens."""
    folder = default_folder()
    text = verilog or engine_verilog(folder, parameters)
    # A library is found again by its Verilog and its shim, but this shim includes another one.
    text += f"// {hashlib.sha256(ENGINE.shim.read_bytes()).hexdigest()}\n"
    return build_library(find_toolchain(), folder, text, parameters.bus_bits, model=PORTED)


class PortedEngine(VerilatedEngine):
    """An engine each end of which sits behind the port that `port_rules.port_of` says.

    It sees to the ports of all that leaves, until a `ComingFrame` has come by another one: then
    only the sender of such frames knows where answers belong.
    """

    _model: int
    _rules: PortRules
    _judges: bool

    @classmethod
    def from_library(cls, path: Path) -> Self:
        self = cls.__new__(cls)
        self._library = _bound(path)
        self._open(self._library, path)
        self._model = self._library.afflux_newest_model()
        self._rules = PortRules()
        self._judges = True
        return self

    def play(
        self,
        frames: Sequence[bytes],
        stimulus: Stimulus = BACK_TO_BACK,
        mac_errors: Sequence[bool] | None = None,
        writes: Sequence[tuple[int, int, int]] = (),
    ) -> list[bytes]:
        """Do as `VerilatedEngine.play`.

        Raises:
            WrongPort: A frame has left by a wrong port.
        """
        ports = [
            frame.port if isinstance(frame, ComingFrame) else source_port(frame) for frame in frames
        ]
        masks = bytes(1 << port for port in ports)
        self._library.afflux_announce_ports(self._model, (1 << PORTS) - 1, masks, len(masks))
        for frame, port in zip(frames, ports, strict=True):
            self._rules.comes(frame, port)
            self._judges &= port == source_port(frame)
        if writes:
            self._rules.commands_come()
        sent = super().play(frames, stimulus, mac_errors, writes)
        if stimulus.reset_at:
            self._rules.reset()
        elif stimulus.drain:
            self._rules.rests()
        return sent

    def write(self, address: int, value: int) -> None:
        super().write(address, value)
        self._rules.written(address, value)

    def reset(self) -> None:
        super().reset()
        self._rules.reset()

    def _take_frames(self, *port: int) -> list[bytes]:
        found = POINTER(c_uint8)()
        count = self._library.afflux_output_ports(self._model, ctypes.byref(found))
        masks = found[:count]
        self._library.afflux_clear_ports(self._model)
        sent = [
            SentFrame.by(frame, mask)
            for frame, mask in zip(super()._take_frames(*port), masks, strict=True)
        ]
        for frame in sent if self._judges else ():
            if not self._rules.is_right(frame, frame.ports, EVERY):
                raise WrongPort(f"by {sorted(frame.ports)}: {frame[:64].hex(' ', 4)}")
        return list(sent)


def _bound(path: Path) -> ctypes.CDLL:
    """Return a library with the functions that `ported_shim.cpp` adds."""
    library = load(path)
    for name, result, arguments in (
        ("newest_model", c_void_p, []),
        ("announce_ports", None, [c_void_p, c_uint8, c_char_p, c_size_t]),
        ("output_ports", c_size_t, [c_void_p, POINTER(POINTER(c_uint8))]),
        ("clear_ports", None, [c_void_p]),
    ):
        function = getattr(library, f"afflux_{name}")
        function.restype, function.argtypes = result, arguments
    return library
