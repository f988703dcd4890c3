"""A whole testbench around the node behind a MAC: three clocks that drift, MAC, AXI4-Lite."""

import logging
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, with_timeout
from cocotbext.axi import AxiLiteBus, AxiLiteMaster

from tests.scenarios.director import Action, Actions, Director, Play, ReadRegister

__all__ = ["Mac", "PortTestbench", "Rules", "TAKES_ALL"]

BYTES_AROUND = 24
"""On the wire around a frame: 8 of preamble, 4 of check sequence, 12 of gap."""


def TAKES_ALL(_: int) -> bool:  # noqa: N802
    """A MAC that is ready in every cycle that the wire leaves it."""
    return True


@dataclass(frozen=True)
class Rules:
    """A MAC as its documents describe it.

    Attributes:
        period_ps: Of its clocks.
        bits: Width of its streams.
        gbit: Its wire carries so much.
        pads: It pads short frames by itself.
    """

    period_ps: int
    bits: int
    gbit: float
    pads: bool

    @property
    def bytes_per_cycle(self) -> float:
        """Of the wire, in a cycle of the MAC's clock."""
        return self.gbit * self.period_ps / 8000


@dataclass
class Sent:
    """One frame that the MAC has taken: its bytes, and whether it is to be spoiled."""

    frame: bytes
    spoiled: bool


@dataclass
class Mac:
    """Both ends of a MAC, at the port list of the node behind it.

    Attributes:
        sent: Frames that it has taken.
        beats: Those of the frame that it is taking.
        idle_cycles: Cycles since it took one.
    """

    dut: Any
    rules: Rules
    ready: Callable[[int], bool] = TAKES_ALL
    gap: Callable[[int], int] = lambda _: 0
    sent: list[Sent] = field(default_factory=list)
    beats: list[bytes] = field(default_factory=list)
    idle_cycles: int = 0

    def __post_init__(self) -> None:
        self._size = self.rules.bits // 8
        for name in ("tvalid", "tlast", "tuser"):
            getattr(self.dut, f"mac_rx_{name}").value = 0
        self.dut.mac_tx_tready.value = 0
        self._wire = 0.0
        self._cycle = 0

    async def receive(self, frames: Iterable[tuple[bytes, bool]]) -> None:
        """Show received frames at the wire's rate, back to back with the least gap.

        Within a frame there is a beat in every cycle that the wire's rate allows, and `gap` more
        cycles without one where it says so.
        """
        dut, size, edge = self.dut, self._size, FallingEdge(self.dut.mac_rx_clk)
        data, keep = dut.mac_rx_tdata, dut.mac_rx_tkeep
        last, user, valid = dut.mac_rx_tlast, dut.mac_rx_tuser, dut.mac_rx_tvalid
        rate = self.rules.bytes_per_cycle
        due, cycle, number = 0.0, 0, 0
        for frame, bad in frames:
            for at in range(0, len(frame), size):
                beat = frame[at : at + size]
                # A beat is complete when the wire has brought its last byte.
                wait = (due + at + len(beat)) / rate - cycle
                for _ in range(max(0, int(wait)) + self.gap(number)):
                    valid.value = 0
                    await edge
                    cycle += 1
                number += 1
                ends = at + size >= len(frame)
                # What lies beyond the end on the bus means nothing.
                filled = beat + b"\xa5" * (size - len(beat))
                data.value = int.from_bytes(filled, "little")
                keep.value = (1 << len(beat)) - 1
                last.value = ends
                user.value = bad and ends
                valid.value = 1
                await edge
                cycle += 1
            due = max(due, (cycle - 1) * rate - len(frame)) + len(frame) + BYTES_AROUND
        valid.value = 0

    async def send(self) -> None:
        """Take frames for as long as the simulation runs, and hold them to the MAC's rules."""
        dut, edge = self.dut, FallingEdge(self.dut.mac_tx_clk)
        valid, ready = dut.mac_tx_tvalid, dut.mac_tx_tready
        pins = (dut.mac_tx_tdata, dut.mac_tx_tkeep, dut.mac_tx_tlast, dut.mac_tx_tuser)
        rate, size = self.rules.bytes_per_cycle, self._size
        # What the wire still has to send of what has been taken: a MAC keeps two beats at most.
        owed, inside, waiting = 0.0, False, None
        while True:
            open_ = owed < 2 * size and self.ready(self._cycle)
            ready.value = open_
            await edge
            self._cycle += 1
            owed = max(0.0, owed - rate)
            self.idle_cycles += 1
            shown = bool(valid.value)
            assert shown or not inside, "tx ran dry within a frame: the MAC underflows"
            if not shown:
                assert waiting is None, "tx took back a beat that the MAC had not taken"
                continue
            beat = tuple(int(pin.value) for pin in pins)
            assert waiting in (None, beat), "a beat changed while the MAC was not ready"
            waiting = beat
            # `ready` was set half a cycle ago and still is until the edge that follows.
            if not open_:
                continue
            raise NotImplementedError

    def whole(self) -> list[bytes]:
        """Return the frames taken since the last call, none of which may be spoiled."""
        taken, self.sent = self.sent, []
        assert not any(each.spoiled for each in taken)
        return [each.frame for each in taken]
