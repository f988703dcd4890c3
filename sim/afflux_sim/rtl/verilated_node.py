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

from afflux_hdl.node.parameters import NodeParameters
from afflux_sim.rtl.build.cache import default_folder
from afflux_sim.rtl.build.toolchain import find_toolchain
from afflux_sim.rtl.build.verilator import NODE, build_library
from afflux_sim.rtl.build.verilog_cache import node_verilog
from afflux_sim.rtl.verilated_model import VerilatedModel

__all__ = ["NodeStatistics", "VerilatedNode"]


class _Frames(ctypes.Structure):
    """`Frames` of the shim."""

    _fields_ = (("data", c_char_p), ("lengths", POINTER(c_uint32)), ("count", c_size_t))


class _Statistics(ctypes.Structure):
    """`Statistics` of the shim."""

    _fields_ = (("cycles", c_uint64), ("network_stalls", c_uint64), ("host_stalls", c_uint64))


_PROTOTYPES = {
    "open": (c_void_p, []),
    "close": (None, [c_void_p]),
    "error": (c_char_p, [c_void_p]),
    "read": (c_int, [c_void_p, c_uint32, POINTER(c_uint32)]),
    "write": (c_int, [c_void_p, c_uint32, c_uint32]),
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
    """What has passed the pins of a simulated node since it was opened.

    Attributes:
        cycles: Clock cycles.
        network_stalls: Cycles in which a beat from the network had to wait. The node promises that
            there are none.
        host_stalls: The same for beats from the host, which may have to wait.
    """

    cycles: int
    network_stalls: int
    host_stalls: int


class VerilatedNode(VerilatedModel):
    """A node in simulation, driven by whole frames at both ports and by its registers.

    Args:
        parameters: What the node is built for.
        cache_folder: Where builds are kept; `None`: see `build.cache.default_folder`.

    Raises:
        ToolchainError: If Verilator or a C++ compiler is missing.
        BuildError: If the build fails; the message names the log.
    """

    kind = "node"
    prefix = "afflux_node"

    def __init__(self, parameters: NodeParameters, cache_folder: Path | None = None) -> None:
        folder = cache_folder or default_folder()
        # Before the Verilog: a missing compiler is noticed sooner than that is made.
        toolchain = find_toolchain()
        verilog = node_verilog(folder, parameters)
        path = build_library(toolchain, folder, verilog, parameters.engine.bus_bits, model=NODE)
        self._open(_load(path), path)

    def play(
        self, from_network: Sequence[bytes], from_host: Sequence[bytes], drain: bool = True
    ) -> tuple[list[bytes], list[bytes]]:
        """Drive frames into both ports at once.

        Args:
            from_network: Ethernet frames of at least one byte, without frame check sequence, which
                come back to back.
            from_host: The same from the host, which waits if the node makes it.
            drain: Run on until the node is idle. If not, end with the last beat that goes in; what
                the node sends later is returned by later calls.

        Returns:
            The frames that it has sent to the network and to the host since the last call, in
            order.

        Raises:
            ValueError: If a frame is empty.
            SimulationError: If the node does not become idle, or breaks the rules of a stream.
        """
        if not all(from_network) or not all(from_host):
            raise ValueError("an empty frame cannot be driven: it has no last beat")
        inputs = [_frames(from_network), _frames(from_host)]
        # Each byte may be sent to 64 workers over a bus of at least four bytes; ten times over.
        limit = 10 * (100_000 + 16 * sum(map(len, (*from_network, *from_host))))
        with self._lock:
            handle = self._use()
            self._check(self._library.afflux_node_play(handle, *inputs, limit, drain))
            return self._take_frames(False), self._take_frames(True)

    def statistics(self) -> NodeStatistics:
        """Return what has passed the pins so far."""
        counts = _Statistics()
        with self._lock:
            self._library.afflux_node_statistics(self._use(), ctypes.byref(counts))
        return NodeStatistics(counts.cycles, counts.network_stalls, counts.host_stalls)


def _frames(frames: Sequence[bytes]) -> _Frames:
    return _Frames(b"".join(frames), (c_uint32 * len(frames))(*map(len, frames)), len(frames))
