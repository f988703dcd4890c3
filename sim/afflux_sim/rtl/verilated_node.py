"""The Verilated node: frames at its network port and at its host port, registers over AXI4-Lite.

::

    with VerilatedNode(NodeParameters()) as node:
        node.write(address_of("local_address"), 0x0A4D0005)
        to_network, to_host = node.play([arp_request], [])

Built on first use, as `afflux_sim.rtl.verilated` is.
"""

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

from afflux_hdl.node.parameters import NodeParameters
from afflux_sim.rtl.compile.cache import default_folder
from afflux_sim.rtl.compile.toolchain import find_toolchain
from afflux_sim.rtl.compile.verilator import NODE, build_library
from afflux_sim.rtl.compile.verilog_cache import node_verilog
from afflux_sim.rtl.verilated_model import VerilatedModel

__all__ = ["AxiAnswer", "NodePace", "NodeStatistics", "VerilatedNode"]


class _Frames(ctypes.Structure):
    """`Frames` of the shim."""

    _fields_ = (
        ("data", c_char_p),
        ("lengths", POINTER(c_uint32)),
        ("errors", c_char_p),
        ("count", c_size_t),
    )


class _Pace(ctypes.Structure):
    """`Pace` of the shim."""

    _fields_ = tuple(
        (name, c_uint64)
        for name in (
            *("seed", "network_gaps", "host_gaps", "network_ready", "host_ready"),
            "reset_at",
        )
    )


class _Access(ctypes.Structure):
    """`Access` of the shim."""

    _fields_ = (
        *((name, c_uint32) for name in ("write", "write_address", "write_data", "strobes")),
        *((name, c_uint32) for name in ("read", "read_address")),
        ("delays", c_uint32 * 5),
        *((name, c_uint32) for name in ("write_response", "read_response", "read_data")),
    )


class _Statistics(ctypes.Structure):
    """`Statistics` of the shim."""

    _fields_ = (
        ("cycles", c_uint64),
        ("network_stalls", c_uint64),
        ("host_stalls", c_uint64),
        ("network_cut", c_uint64),
        ("host_cut", c_uint64),
        ("digest", c_uint64),
        ("long_waits", c_uint64),
    )


_PROTOTYPES = {
    "open": (c_void_p, []),
    "close": (None, [c_void_p]),
    "error": (c_char_p, [c_void_p]),
    "read": (c_int, [c_void_p, c_uint32, POINTER(c_uint32)]),
    "write": (c_int, [c_void_p, c_uint32, c_uint32]),
    "reset": (c_int, [c_void_p]),
    "pace": (c_int, [c_void_p, POINTER(_Pace)]),
    "access": (c_int, [c_void_p, POINTER(_Access)]),
    "play": (c_int, [c_void_p, POINTER(_Frames), POINTER(_Frames), c_uint64, c_int]),
    "output": (
        c_size_t,
        [c_void_p, c_int, POINTER(POINTER(c_uint8)), POINTER(POINTER(c_uint32))],
    ),
    "clear_output": (None, [c_void_p, c_int]),
    "statistics": (None, [c_void_p, POINTER(_Statistics)]),
}


@cache
def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(library, f"afflux_node_{name}")
        function.restype = result
        function.argtypes = arguments
    return library


@dataclass(frozen=True)
class NodeStatistics:
    """The traffic at the pins of a simulated node since it was opened.

    Attributes:
        cycles: Clock cycles.
        network_stalls: Cycles in which a beat from the network had to wait. The node promises that
            there are none.
        host_stalls: The same for beats from the host, which may have to wait.
        network_cut: Frames to the network that ended with an error; they are not among those that
            `play` returns.
        host_cut: The same of frames to the host.
        digest: A number that depends on every output pin in every cycle since the node was opened,
            but for the data of beats that are not valid.
        long_waits: Times that a beat has waited on `net_tx` for 256 cycles in a row.
    """

    cycles: int
    network_stalls: int
    host_stalls: int
    network_cut: int
    host_cut: int
    digest: int
    long_waits: int


@dataclass(frozen=True, kw_only=True)
class NodePace:
    """In which cycles beats are offered and taken at the node's ports, chosen at random.

    Attributes:
        seed: Of the choices. The same seed gives the same cycles.
        network_gaps: Share of the cycles before each beat from the network in which none is
            offered, below 1.
        host_gaps: The same of beats from the host.
        network_ready: Share of the cycles in which the network takes a beat.
        host_ready: The same of the host.
        reset_at: Cycles from the beginning of a play after which the reset pin is held for four
            cycles, in which both ends go on; 0: it is not.
    """

    seed: int = 0
    network_gaps: float = 0.0
    host_gaps: float = 0.0
    network_ready: float = 1.0
    host_ready: float = 1.0
    reset_at: int = 0


@dataclass(frozen=True)
class AxiAnswer:
    """The outcome of one access over AXI4-Lite.

    Attributes:
        write_response: BRESP, None if nothing was written.
        read_response: RRESP, None if nothing was read.
        data: RDATA, likewise.
    """

    write_response: int | None
    read_response: int | None
    data: int | None


class VerilatedNode(VerilatedModel):
    """A node in simulation, driven by whole frames at both ports and by its registers.

    Args:
        parameters: The node's sizes.
        cache_folder: Where builds are kept; `None`: see `build.cache.default_folder`.

    Raises:
        ToolchainError: If Verilator or a C++ compiler is missing.
        BuildError: If the build fails; the message names the log.
    """

    kind = "node"
    prefix = "afflux_node"
    _slowness = 10

    def __init__(self, parameters: NodeParameters, cache_folder: Path | None = None) -> None:
        folder = cache_folder or default_folder()
        # Before the Verilog: a missing compiler is noticed sooner than that is made.
        toolchain = find_toolchain()
        verilog = node_verilog(folder, parameters)
        path = build_library(toolchain, folder, verilog, parameters.engine.bus_bits, model=NODE)
        self._open(_load(path), path)

    @classmethod
    def from_library(cls, path: Path) -> Self:
        """Make a node from what `build.verilator.build_library` has built."""
        self = cls.__new__(cls)
        self._open(_load(path), path)
        return self

    def play(
        self,
        from_network: Sequence[bytes],
        from_host: Sequence[bytes],
        drain: bool = True,
        *,
        network_errors: Sequence[bool] | None = None,
        host_errors: Sequence[bool] | None = None,
        max_cycles: int | None = None,
    ) -> tuple[list[bytes], list[bytes]]:
        """Drive frames into both ports at once, back to back unless :meth:`pace` says otherwise.

        Args:
            from_network: Ethernet frames of at least one byte, without frame check sequence.
            from_host: The same from the host, which waits if the node makes it.
            drain: Run on until the node is idle. If not, end with the last beat that goes in;
                frames that the node sends later are returned by later calls.
            network_errors: For each frame from the network, whether it is marked as bad; `None`:
                none is.
            host_errors: The same of the host's.
            max_cycles: Cycles after which a node that is still not idle is taken to hang; `None`:
                many more than it takes to send every frame to 64 workers.

        Returns:
            The frames that it has sent to the network and to the host since the last call, in
            order.

        Raises:
            ValueError: If a frame is empty.
            SimulationError: If the node does not become idle, or breaks the rules of a stream.
        """
        if not all(from_network) or not all(from_host):
            raise ValueError("an empty frame cannot be driven: it has no last beat")
        inputs = [_frames(from_network, network_errors), _frames(from_host, host_errors)]
        # Each byte may be sent to 64 workers over a bus of at least four bytes; ten times over.
        limit = max_cycles or self._slowness * (
            100_000 + 16 * sum(map(len, (*from_network, *from_host)))
        )
        with self._lock:
            handle = self._use()
            self._check(self._library.afflux_node_play(handle, *inputs, limit, drain))
            return self._take_frames(False), self._take_frames(True)

    def pace(self, pace: NodePace) -> None:
        """Say how later plays offer and take beats."""
        shares = _Pace(seed=pace.seed & (2**64 - 1), reset_at=pace.reset_at)
        for name in ("network_gaps", "host_gaps", "network_ready", "host_ready"):
            setattr(shares, name, round(getattr(pace, name) * 2**32))
        open_shares = (
            1 - pace.network_gaps, 1 - pace.host_gaps, pace.network_ready, pace.host_ready,
        )  # fmt: skip
        with self._lock:
            self._slowness = round(10 / max(min(open_shares), 0.01))
            self._check(self._library.afflux_node_pace(self._use(), ctypes.byref(shares)))

    def access(
        self,
        *,
        write: tuple[int, int] | None = None,
        read: int | None = None,
        strobes: int = 15,
        delays: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0),
    ) -> AxiAnswer:
        """Write, read, or both at once, over AXI4-Lite; refusals are answers here.

        Args:
            write: Byte address and value.
            read: Byte address.
            strobes: WSTRB, 4 bits.
            delays: Cycles by which AWVALID, WVALID, ARVALID, BREADY and RREADY come later.

        Raises:
            SimulationError: If there is no answer, or one that nobody asked for.
        """
        asked = _Access(
            write is not None, *(write or (0, 0)), strobes, read is not None, read or 0, delays
        )
        with self._lock:
            self._check(self._library.afflux_node_access(self._use(), ctypes.byref(asked)))
        return AxiAnswer(
            asked.write_response if write is not None else None,
            asked.read_response if read is not None else None,
            asked.read_data if read is not None else None,
        )

    def reset(self) -> None:
        """Hold the reset pin for four cycles. Traffic in any direction is lost.

        Statistics go on.
        """
        with self._lock:
            self._check(self._library.afflux_node_reset(self._use()))

    @property
    def cycles(self) -> int:
        """Clock cycles since the node was opened."""
        return self.statistics().cycles

    def statistics(self) -> NodeStatistics:
        """Return what has passed the pins so far."""
        counts = _Statistics()
        with self._lock:
            self._library.afflux_node_statistics(self._use(), ctypes.byref(counts))
        return NodeStatistics(**{name: getattr(counts, name) for name, _ in counts._fields_})


def _frames(frames: Sequence[bytes], errors: Sequence[bool] | None) -> _Frames:
    if errors is not None and len(errors) != len(frames):
        raise ValueError(f"{len(errors)} errors for {len(frames)} frames")
    lengths = (c_uint32 * len(frames))(*map(len, frames))
    marks = None if errors is None else bytes(errors)
    return _Frames(b"".join(frames), lengths, marks, len(frames))
