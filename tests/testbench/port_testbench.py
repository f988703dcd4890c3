"""A whole testbench around the node behind a MAC: three clocks that drift, the MAC, AXI4-Lite."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, with_timeout
from cocotbext.axi import AxiLiteBus, AxiLiteMaster

from afflux_hdl.contract.registers import (
    COUNTERS,
    NODE_COUNTERS,
    counter_address,
    node_counter_address,
)
from tests.scenarios.director import Action, Actions, Play, ReadRegister
from tests.testbench.node_testbench import Pins
from tests.testbench.pace import Pace
from tests.testbench.stream_driver import StreamDriver
from tests.testbench.stream_sampler import StreamSampler

__all__ = ["CMAC", "MAC_25G", "Mac", "PortTestbench", "Rules", "Sent", "always"]

PREAMBLE, CHECK, GAP = 8, 4, 12
"""Bytes of the wire before a frame, and behind it."""

FRAME_BYTES_MIN = 60


def always(_: int) -> bool:
    """Say yes in every cycle."""
    return True


@dataclass(frozen=True)
class Rules:
    """A MAC as its documents describe it.

    Attributes:
        period_ps: Of its clocks.
        bits: Width of its streams.
        gbit: Its wire carries so many bits in a nanosecond.
        keeps: Bytes that it takes ahead of the wire.
        pads: It pads short frames by itself.
        least: Bytes of the shortest frame that it can be given.
    """

    period_ps: int
    bits: int
    gbit: float
    keeps: int
    pads: bool
    least: int

    @property
    def bytes_per_cycle(self) -> float:
        """Of the wire, in a cycle of the MAC's clock."""
        return self.gbit * self.period_ps / 8000


MAC_25G = Rules(2560, 64, 25.0, keeps=16, pads=True, least=9)
"""verilog-ethernet's `eth_mac_10g` at 390.625 MHz. Within a frame it is ready in every cycle, and a
frame of one beat it takes for one that runs dry."""

CMAC = Rules(3104, 512, 100.0, keeps=1024, pads=False, least=FRAME_BYTES_MIN)
"""AMD's CMAC at 322.2 MHz: it takes faster than the wire until its FIFO is full."""


@dataclass(frozen=True)
class Sent:
    """One frame that the MAC has taken: its bytes, and whether it is to be spoiled."""

    frame: bytes
    spoiled: bool


class Mac:
    """Both ends of a MAC, at the port list of the node behind it.

    Args:
        dut: The node behind a MAC.
        rules: The MAC.
        ready: In which cycles it is ready, of those in which the wire lets it.

    Attributes:
        sent: Frames that it has taken.
        begun: Cycle of the first beat of each.
        inside: It is taking one.
        quiet: Cycles since it took a beat.
    """

    def __init__(self, dut: Any, rules: Rules, ready: Callable[[int], bool] = always) -> None:
        self._dut, self._rules, self._ready = dut, rules, ready
        self._size = rules.bits // 8
        self.sent: list[Sent] = []
        self.begun: list[int] = []
        self.inside = False
        self.quiet = 0
        for name in ("tdata", "tkeep", "tvalid", "tlast", "tuser"):
            getattr(dut, f"mac_rx_{name}").value = 0
        dut.mac_tx_tready.value = 0

    async def receive(self, frames: Sequence[bytes], bad: Sequence[bool] | None = None) -> None:
        """Show received frames at the wire's full rate, with the least gap between them."""
        dut, size, edge = self._dut, self._size, FallingEdge(self._dut.mac_rx_clk)
        data, keep = dut.mac_rx_tdata, dut.mac_rx_tkeep
        last, user, valid = dut.mac_rx_tlast, dut.mac_rx_tuser, dut.mac_rx_tvalid
        rate, begins, cycle = self._rules.bytes_per_cycle, 0.0, 0
        await edge
        for number, frame in enumerate(frames):
            for at in range(0, len(frame), size):
                beat = frame[at : at + size]
                # A beat is shown when the wire has brought its last byte.
                while cycle * rate < begins + at + len(beat):
                    valid.value = 0
                    await edge
                    cycle += 1
                ends = at + size >= len(frame)
                # The bus means nothing beyond the end, or before.
                data.value = int.from_bytes(beat + b"\xa5" * (size - len(beat)), "little")
                keep.value = (1 << len(beat)) - 1
                last.value = ends
                user.value = not ends or bool(bad and bad[number])
                valid.value = 1
                await edge
                cycle += 1
            begins += len(frame) + CHECK + GAP + PREAMBLE
        valid.value = 0

    async def send(self) -> None:
        """Take frames for as long as the simulation runs, and hold them to the MAC's rules."""
        dut, rules, edge = self._dut, self._rules, FallingEdge(self._dut.mac_tx_clk)
        valid, ready = dut.mac_tx_tvalid, dut.mac_tx_tready
        pins = (dut.mac_tx_tdata, dut.mac_tx_tkeep, dut.mac_tx_tlast, dut.mac_tx_tuser)
        owed, cycle, waiting, frame = 0.0, 0, None, b""
        while True:
            await edge
            if dut.mac_tx_rst.value:
                # The part of a frame that it has taken is gone, and its present input means
                # nothing.
                owed, waiting, frame, self.inside, self.quiet = 0.0, None, b"", False, 0
                ready.value = 0
                continue
            cycle, self.quiet = cycle + 1, self.quiet + 1
            owed = max(0.0, owed - rules.bytes_per_cycle)
            takes = owed < rules.keeps and self._ready(cycle)
            ready.value = takes
            assert valid.value or not self.inside, "tx ran dry within a frame: the MAC underflows"
            assert valid.value or waiting is None, "a beat was taken back"
            if not valid.value:
                continue
            beat = tuple(int(pin.value) for pin in pins)
            assert waiting in (None, beat), "a beat changed while the MAC was not ready"
            waiting = None if takes else beat
            if takes:
                bits, keep, last, user = beat
                count = keep.bit_count()
                assert keep == (1 << count) - 1 and count, f"tkeep {keep:#x} has holes"
                assert last or count == self._size, f"tkeep {keep:#x} before the last beat"
                if not self.inside:
                    self.begun.append(cycle)
                    owed += PREAMBLE
                owed += count + (CHECK + GAP if last else 0)
                frame += bits.to_bytes(self._size, "little")[:count]
                self.inside, self.quiet = not last, 0
                if last:
                    assert len(frame) >= rules.least, f"a frame of {len(frame)} bytes"
                    self.sent.append(Sent(frame, bool(user)))
                    frame = b""

    def stop(self) -> None:
        """Show nothing: what was received until now is all."""
        self._dut.mac_rx_tvalid.value = 0

    def take(self) -> list[bytes]:
        """Return the frames taken since the last call, of which none may be spoiled."""
        taken, self.sent = self.sent, []
        assert not any(each.spoiled for each in taken), "a frame that is to be spoiled"
        return [each.frame for each in taken]


class PortTestbench:
    """Clocks, resets, the MAC, registers.

    Args:
        dut: The node behind a MAC.
        rules: The MAC.
        node_ps: Period of the node's clock, even.
        ready: As `Mac` has it.
    """

    def __init__(
        self, dut: Any, rules: Rules, *, node_ps: int, ready: Callable[[int], bool] = always
    ) -> None:
        self.dut = dut
        logging.getLogger("cocotb.afflux_port.s_axil").setLevel(logging.WARNING)
        for name in ("rst", "mac_rx_rst", "mac_tx_rst"):
            getattr(dut, name).value = 1
        self.host_side()
        self.mac = Mac(dut, rules, ready)
        # Of the MAC's two clocks the one that comes with the data is the other end's: a little off.
        Clock(dut.clk, node_ps, unit="ps").start()
        Clock(dut.mac_rx_clk, rules.period_ps - 2, unit="ps").start()
        Clock(dut.mac_tx_clk, rules.period_ps, unit="ps").start()

    def host_side(self) -> None:
        """Drive the host's streams, and the registers."""
        dut = self.dut
        self.host_tx = StreamDriver(Pins(dut, "host_tx", "rx"), Pace(1.0, 0))
        self.host_rx = StreamSampler(Pins(dut, "host_rx", "tx"), Pace(1.0, 0))
        self.axil = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
        cocotb.start_soon(self.host_rx.run())

    async def start(self) -> None:
        """Let the resets end, one after the other."""
        dut = self.dut
        for name in ("rst", "mac_tx_rst", "mac_rx_rst"):
            for _ in range(6):
                await FallingEdge(dut.clk)
            getattr(dut, name).value = 0
        cocotb.start_soon(self.mac.send())
        for _ in range(10):
            await FallingEdge(dut.clk)

    async def read(self, address: int) -> int:
        """Value of a register."""
        answer = await with_timeout(self.axil.read(address, 4), 10, "us")
        assert answer.resp == 0, f"read of {address:#x} answered {answer.resp!r}"
        return int.from_bytes(answer.data, "little")

    async def write(self, address: int, value: int) -> None:
        """Write a register."""
        answer = await with_timeout(self.axil.write(address, value.to_bytes(4, "little")), 10, "us")
        assert answer.resp == 0, f"write of {address:#x} answered {answer.resp!r}"

    async def counters(self) -> dict[str, int]:
        """All counters of the node, and under `engine.NAME` the engine's."""
        places = {counter.name: node_counter_address(counter.name) for counter in NODE_COUNTERS}
        places |= {f"engine.{each.name}": counter_address(each.name) for each in COUNTERS}
        return {name: await self.read(address) for name, address in places.items()}

    async def send(self, frames: Sequence[bytes]) -> None:
        """Drive frames of the host, which may be made to wait."""
        # The driver goes by this clock; the caller may just have gone by another.
        await FallingEdge(self.dut.clk)
        for frame in frames:
            await self.host_tx.drive(frame)

    def to_host(self) -> list[bytes]:
        """Frames that have left for the host since the last call."""
        frames, self.host_rx.frames = self.host_rx.frames, []
        return frames

    async def settle(self) -> None:
        """Wait until nothing is under way."""
        for _ in range(20_000):
            quiet = self.mac.quiet
            for _ in range(30):
                await FallingEdge(self.dut.clk)
            if self.dut.idle.value and self.mac.quiet >= quiet + 30 and not self.mac.inside:
                return
        raise AssertionError("the node does not become idle")

    async def perform(self, actions: Actions[Any]) -> Any:
        """Run a scenario to its end, and return its result."""
        answer: object = None
        while True:
            try:
                action = actions.send(answer)
            except StopIteration as end:
                return end.value
            answer = await self._perform_one(action)

    async def _perform_one(self, action: Action) -> object:
        if isinstance(action, Play):
            await self.mac.receive(action.frames, action.mac_errors)
            await self.settle()
            return self.mac.take()
        if isinstance(action, ReadRegister):
            return await self.read(action.address)
        await self.write(action.address, action.value)
        return None
