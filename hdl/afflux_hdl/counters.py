"""Event counters: 64 bits each, read as two registers."""

from amaranth.hdl import Array, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl import registers
from afflux_hdl.layouts import Cause

__all__ = ["Counters"]

AMOUNT_BITS = 7
"""Bits of the largest step: 64 bytes in one cycle."""


class Counters(wiring.Component):
    """Counts events.

    Latency: an event is counted one cycle later. Throughput: every counter in every cycle. Wraps.

    Members:
        receive_judged, receive_cause, admit_judged, admit_cause: Verdicts of the two stages, whose
            causes are different counters.
        amounts: For each counter that is not a frame's verdict, in the order of
            ``registers.COUNTERS``: by how much it grows in this cycle.
        address: Number of the register: twice the counter's number, plus one for its upper half.
        value: The register, one cycle later. Reading a lower half latches the upper half.
    """

    def __init__(self) -> None:
        self._others = [c for c in registers.COUNTERS if c not in registers.FRAME_COUNTERS]
        super().__init__(
            {
                "receive_judged": In(1),
                "receive_cause": In(Cause),
                "admit_judged": In(1),
                "admit_cause": In(Cause),
                **{counter.name: In(AMOUNT_BITS) for counter in self._others},
                "address": In(range(2 * len(registers.COUNTERS))),
                "value": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        totals = []
        for counter in registers.COUNTERS:
            total = Signal(64, name=f"total_{counter.name}")
            if counter in self._others:
                amount = getattr(self, counter.name)
            else:
                verdict = Cause(registers.FRAME_COUNTERS.index(counter))
                amount = Signal(name=f"counts_{counter.name}")
                m.d.comb += amount.eq(
                    (self.receive_judged & (self.receive_cause == verdict))
                    | (self.admit_judged & (self.admit_cause == verdict))
                )
            with m.If(amount != 0):
                m.d.sync += total.eq(total + amount)
            totals.append(total)

        upper = Signal(32)
        selected = Signal(64)
        m.d.comb += selected.eq(Array(totals)[self.address[1:]])
        with m.If(self.address[0]):
            m.d.sync += self.value.eq(upper)
        with m.Else():
            m.d.sync += [self.value.eq(selected[:32]), upper.eq(selected[32:])]
        return m
