"""The management as gateware, Verilated: alone at a register bus in Python, or behind a node."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring

from afflux_hdl.lib.top_level import TopLevel
from afflux_hdl.management.management import Management
from afflux_hdl.node.node import Node
from afflux_hdl.node.parameters import NodeParameters
from afflux_sim.rtl.compile.cache import default_folder
from afflux_sim.rtl.compile.toolchain import find_toolchain
from afflux_sim.rtl.compile.verilator import Model, build_library

__all__ = ["BenchTop", "ManagementBench", "Pins", "build_bench"]

SHIM = Model(
    "management_bench", "VManagementBench", Path(__file__).with_name("management_shim.cpp")
)
BUS_BITS = 32
AXIL_PINS = {
    "aw": {"addr": 12},
    "w": {"data": 32, "strb": 4},
    "b": {"resp": 2},
    "ar": {"addr": 12},
    "r": {"data": 32, "resp": 2},
}
IN_CHANNELS = ("b", "r")


class BenchTop(TopLevel):
    """A management, with its register port as pins, or a node and a management.

    Args:
        management: Fresh.
        node: The node in front of it; None for nothing.
    """

    def __init__(self, management: Management, node: NodeParameters | None = None) -> None:
        super().__init__()
        self._management, self._node = management, node
        for name in ("rx", "tx"):
            fields = {"data": BUS_BITS, "keep": BUS_BITS // 8, "last": 1, "error": 1}
            for pin, width in (fields | {"valid": 1, "ready": 1}).items():
                setattr(self, f"{name}_{pin}", Signal(width, name=f"{name}_{pin}"))
        if node is None:
            for channel, payload in AXIL_PINS.items():
                for pin, width in (payload | {"valid": 1, "ready": 1}).items():
                    setattr(
                        self, f"axil_{channel}{pin}", Signal(width, name=f"axil_{channel}{pin}")
                    )
        self.entropy = Signal()
        self.configured = Signal()
        self.fault = Signal()
        self.authenticated = Signal()
        self.reset = Signal()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self.drive_clock(m)
        m.submodules.management = management = self._management
        m.d.comb += management.entropy.eq(self.entropy)
        for name in ("configured", "fault", "authenticated", "reset"):
            m.d.comb += getattr(self, name).eq(getattr(management, name))
        taken, sent = management.i, management.o
        if self._node is not None:
            m.submodules.node = node = Node(self._node, managed=True)
            wiring.connect(m, node.host_rx, management.i)
            wiring.connect(m, management.o, node.host_tx)
            wiring.connect(m, management.axil, node.axil)
            taken, sent = node.rx, node.tx
        else:
            self._axil(m, management)
        m.d.comb += [taken.valid.eq(self._pin("rx", "valid"))]
        if self._node is not None:
            m.d.comb += self._pin("rx", "ready").eq(1)
        else:
            m.d.comb += self._pin("rx", "ready").eq(taken.ready)
        m.d.comb += [
            self._pin("tx", "valid").eq(sent.valid),
            sent.ready.eq(self._pin("tx", "ready")),
        ]
        for name in ("data", "keep", "last", "error"):
            m.d.comb += [
                taken.payload[name].eq(self._pin("rx", name)),
                self._pin("tx", name).eq(sent.payload[name]),
            ]
        return m

    def _pin(self, prefix: str, name: str) -> Signal:
        signal: Signal = getattr(self, f"{prefix}_{name}")
        return signal

    def _axil(self, m: Module, management: Management) -> None:
        for channel, payload in AXIL_PINS.items():
            port = getattr(management.axil, channel)
            incoming = channel in IN_CHANNELS
            names: dict[str, Any] = {"valid": port.valid}
            if len(payload) == 1:
                names[next(iter(payload))] = port.payload
            else:
                names |= {name: port.payload[name] for name in payload}
            for name, signal in names.items():
                pin = self._pin("axil", f"{channel}{name}")
                m.d.comb += signal.eq(pin) if incoming else pin.eq(signal)
            ready = self._pin("axil", f"{channel}ready")
            m.d.comb += ready.eq(port.ready) if incoming else port.ready.eq(ready)


class Pins(ctypes.Structure):
    """`Pins` of the shim: cycles so far, pulses counted, and what two pins show."""

    _fields_ = (
        ("cycles", ctypes.c_uint64),
        ("accepted", ctypes.c_uint64),
        ("resets", ctypes.c_uint64),
        ("configured", ctypes.c_uint32),
        ("fault", ctypes.c_uint32),
    )


READ = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint32))
WRITE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint32, ctypes.c_uint32)
SLVERR = 2


def build_bench(top: BenchTop) -> Path:
    """Return the library of a bench, from the cache if it is there."""
    verilog = top.to_verilog(SHIM.top)
    return build_library(find_toolchain(), default_folder(), verilog, BUS_BITS, model=SHIM)


@cache
def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.management_open.restype = ctypes.c_void_p
    library.management_error.restype = ctypes.c_char_p
    library.management_output.restype = ctypes.c_size_t
    library.management_partial.restype = ctypes.c_size_t
    return library


@dataclass
class _Bus:
    read: Any
    write: Any


class ManagementBench:
    """One bench that runs.

    Args:
        path: From `build_bench`.
        registers: The register bus, with `read` and `write` as the golden model's; None behind a
            node, which has its own.
    """

    def __init__(self, path: Path, registers: Any = None) -> None:
        self._library = _load(path)
        self._handle = ctypes.c_void_p(self._library.management_open())
        if registers is not None:
            self._bus = _Bus(READ(_reader(registers)), WRITE(_writer(registers)))
            self._library.management_set_bus(self._handle, self._bus.read, self._bus.write)

    def close(self) -> None:
        self._library.management_close(self._handle)

    def __enter__(self) -> "ManagementBench":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def set_entropy(self, kind: int, seed: int = 0) -> None:
        """Choose the source: 0 random from a seed, 1 always low, 2 always high."""
        self._library.management_set_entropy(self._handle, kind, ctypes.c_uint64(seed))

    def set_pace(self, seed: int, *, gaps: int = 0, stalls: int = 0) -> None:
        """Wait before one in so many beats, and stall in one of so many cycles; 0 for never."""
        self._library.management_set_pace(self._handle, ctypes.c_uint64(seed), gaps, stalls)

    def reset(self) -> None:
        self._check(self._library.management_reset(self._handle))

    def run(
        self, frames: Sequence[bytes] = (), *, bad: Sequence[bool] = (), after: int = 0
    ) -> list[bytes]:
        """Drive frames, let so many more cycles pass, and return the frames that have come out."""
        lengths = (ctypes.c_uint32 * len(frames))(*map(len, frames))
        errors = bytes(map(int, bad)) if bad else bytes(len(frames))
        self._check(
            self._library.management_run(
                self._handle,
                b"".join(frames),
                lengths,
                errors,
                ctypes.c_size_t(len(frames)),
                ctypes.c_uint64(after),
            )
        )
        data, sizes = ctypes.POINTER(ctypes.c_uint8)(), ctypes.POINTER(ctypes.c_uint32)()
        count = self._library.management_output(
            self._handle, ctypes.byref(data), ctypes.byref(sizes)
        )
        found, at = [], 0
        whole = ctypes.string_at(data, sum(sizes[:count])) if count else b""
        for size in sizes[:count]:
            found.append(whole[at : at + size])
            at += size
        self._library.management_clear_output(self._handle)
        return found

    @property
    def partial(self) -> int:
        """Bytes of a frame that has not ended yet."""
        return int(self._library.management_partial(self._handle))

    @property
    def pins(self) -> Pins:
        """The values of the pins."""
        pins = Pins()
        self._library.management_pins(self._handle, ctypes.byref(pins))
        return pins

    def _check(self, status: int) -> None:
        if status:
            raise AssertionError(self._library.management_error(self._handle).decode())


def _reader(registers: Any) -> Callable[[int, Any], int]:
    def read(address: int, value: Any) -> int:
        found = registers.read(address)
        value[0] = found or 0
        return SLVERR if found is None else 0

    return read


def _writer(registers: Any) -> Callable[[int, int], int]:
    return lambda address, value: 0 if registers.write(address, value) else SLVERR
