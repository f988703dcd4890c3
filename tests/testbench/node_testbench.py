"""A whole testbench around the node: clock, reset, four streams, AXI4-Lite."""

import logging
from collections.abc import Iterable
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, with_timeout
from cocotbext.axi import AxiLiteBus, AxiLiteMaster

from afflux_hdl.contract.registers import (
    COUNTERS,
    NODE_COUNTERS,
    address_of,
    counter_address,
    node_counter_address,
)
from tests.scenarios.afflux_layer import ENGINE_PORT
from tests.scenarios.job_frames import ENGINE_ADDRESS, ENGINE_MAC
from tests.testbench.pace import Pace
from tests.testbench.stream_driver import StreamDriver
from tests.testbench.stream_sampler import StreamSampler

__all__ = ["NodeTestbench"]

CLOCK_PERIOD_NS = 4


class Pins:
    """Some of the node's pins, under the names that stream drivers and samplers know.

    Args:
        dut: The node.
        prefix: The beginning of the pins' names here.
        known: Their beginning there.
    """

    def __init__(self, dut: Any, prefix: str, known: str) -> None:
        self.clk = dut.clk
        for name in ("data", "keep", "last", "error", "valid", "ready"):
            if hasattr(dut, f"{prefix}_{name}"):
                setattr(self, f"{known}_{name}", getattr(dut, f"{prefix}_{name}"))


class OpenPace(Pace):
    """A pace that draws, or, if its share is 0, lets nothing pass until it is opened.

    Attributes:
        is_open: Whether it draws.
    """

    def __init__(self, share: float, seed: int) -> None:
        super().__init__(share or 1.0, seed)
        self.is_open = share > 0

    def __call__(self) -> bool:
        return self.is_open and super().__call__()


class NodeTestbench:
    """Drives all of a node's streams; each has a pace of its own.

    Args:
        dut: The node.
        gaps: Share of the cycles in which no beat is offered, to `net_rx` and to `host_tx`.
        net_ready, host_ready: Share of the cycles in which `net_tx` and `host_rx` take a beat.
        seed: Of these choices.
    """

    def __init__(
        self,
        dut: Any,
        *,
        gaps: float = 0.0,
        net_ready: float = 1.0,
        host_ready: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.dut = dut
        logging.getLogger("cocotb.afflux_node.s_axil").setLevel(logging.WARNING)
        # Under reset, so that nothing that the testbench does to the pins counts.
        dut.rst.value = 1
        self.net_rx = StreamDriver(Pins(dut, "net_rx", "rx"), Pace(1 - gaps, seed))
        self.host_tx = StreamDriver(Pins(dut, "host_tx", "rx"), Pace(1 - gaps, seed + 1))
        self._paces: dict[str, OpenPace] = {}
        self.net_tx = self._sampler("net_tx", net_ready, seed + 2)
        self.host_rx = self._sampler("host_rx", host_ready, seed + 3)
        self.axil = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)

    def _sampler(self, prefix: str, share: float, seed: int) -> StreamSampler:
        pace = OpenPace(share, seed)
        self._paces[prefix] = pace
        return StreamSampler(Pins(self.dut, prefix, "tx"), pace)

    def open(self, prefix: str) -> None:
        """Begin to take an output in every cycle that was not taken at all until now."""
        self._paces[prefix].is_open = True

    async def start(self, configure: bool = True) -> None:
        """Start the clock, reset the node, sample its outputs, and give it its addresses."""
        dut = self.dut
        Clock(dut.clk, CLOCK_PERIOD_NS, unit="ns").start()
        for _ in range(4):
            await FallingEdge(dut.clk)
        dut.rst.value = 0
        await FallingEdge(dut.clk)
        for sampler in (self.net_tx, self.host_rx):
            cocotb.start_soon(sampler.run())
        if configure:
            mac = int(ENGINE_MAC.replace(":", ""), 16)
            await self.write(address_of("local_mac_high"), mac >> 32)
            await self.write(address_of("local_mac_low"), mac % 2**32)
            octets = bytes(map(int, ENGINE_ADDRESS.split(".")))
            await self.write(address_of("local_address"), int.from_bytes(octets, "big"))
            await self.write(address_of("local_port"), ENGINE_PORT)

    async def read(self, address: int) -> int:
        """Value of a register; fails if the response is not OKAY."""
        answer = await with_timeout(self.axil.read(address, 4), 10, "us")
        # The master goes by rising edges, the streams by falling ones.
        await FallingEdge(self.dut.clk)
        assert answer.resp == 0, f"read of {address:#x} answered {answer.resp!r}"
        return int.from_bytes(answer.data, "little")

    async def write(self, address: int, value: int) -> None:
        """Write a register; fail if the response is not OKAY."""
        data = value.to_bytes(4, "little")
        answer = await with_timeout(self.axil.write(address, data), 10, "us")
        await FallingEdge(self.dut.clk)
        assert answer.resp == 0, f"write of {address:#x} answered {answer.resp!r}"

    async def counters(self) -> dict[str, int]:
        """All counters of the node, and under `engine.NAME` the engine's."""
        places = {counter.name: node_counter_address(counter.name) for counter in NODE_COUNTERS}
        places |= {f"engine.{each.name}": counter_address(each.name) for each in COUNTERS}
        return {
            name: await self.read(address) | await self.read(address + 4) << 32
            for name, address in places.items()
        }

    async def send(self, frames: Iterable[bytes], mac_error: bool = False) -> None:
        """Drive frames from the network; `net_rx` must never stall."""
        for frame in frames:
            await self.net_rx.drive(frame, mac_error)
        assert self.net_rx.stalls == 0, "net_rx_ready was low"

    async def send_from_host(self, frames: Iterable[bytes], error: bool = False) -> None:
        """Drive frames from the host, which may be made to wait."""
        for frame in frames:
            await self.host_tx.drive(frame, error)

    async def settle(self) -> None:
        """Wait until nothing is left inside."""
        quiet = 0
        for _ in range(100_000):
            await FallingEdge(self.dut.clk)
            quiet = quiet + 1 if self.dut.idle.value else 0
            if quiet == 12:
                break
        else:
            raise AssertionError("the node does not become idle")
        assert not self.net_tx.beats and not self.host_rx.beats, "idle within a frame"

    def to_net(self) -> list[bytes]:
        """Frames that have left for the network since the last call."""
        frames, self.net_tx.frames = self.net_tx.frames, []
        return frames

    def to_host(self) -> list[bytes]:
        """Frames that have left for the host since the last call."""
        frames, self.host_rx.frames = self.host_rx.frames, []
        return frames
