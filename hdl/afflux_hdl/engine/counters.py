"""Event counters: 64 bits each, read as two registers.

Tested: `tests/sim/test_engine_counters.py`, `tests/hdl/test_counters.py`.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.contract import registers
from afflux_hdl.engine.layouts import Cause
from afflux_hdl.lib.mux_tree import select

__all__ = ["Counters"]

AMOUNT_BITS = 7
"""Bits of the largest step: 64 bytes in one cycle."""

DISCARDED_BITS = 17
"""Bits of the largest step of `results_discarded`: all results of the largest pool at once."""

GROUP_BITS = 3
"""Counters are read in groups of 2**3."""


class Counters(wiring.Component):
    """Counts events.

    Latency: an event is counted two cycles later. Throughput: every counter in every cycle.
    Overflow: counters wrap.

    Members:
        receive_judged, receive_cause, admit_judged, admit_cause: Verdicts of the two stages, whose
            causes are different counters.
        (name of a counter): For each counter that does not count verdicts: by how much it grows in
            this cycle.
        address: Number of the register: twice the counter's number, plus one for its upper half.
        value: The register's value, one cycle later. Reading has no effect.
    """

    def __init__(self) -> None:
        self._others = [c for c in registers.COUNTERS if c not in registers.FRAME_COUNTERS]
        super().__init__(
            {
                "receive_judged": In(1),
                "receive_cause": In(Cause),
                "admit_judged": In(1),
                "admit_cause": In(Cause),
                **{
                    counter.name: In(
                        DISCARDED_BITS if counter.name == "results_discarded" else AMOUNT_BITS
                    )
                    for counter in self._others
                },
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
            step = Signal.like(amount, name=f"step_{counter.name}")
            m.d.sync += step.eq(amount)
            m.d.sync += total.eq(total + step)
            totals.append(total)

        # A counter of each group is selected in the cycle of the address, the group in the next.
        half, within, group = (
            self.address[0],
            self.address[1 : 1 + GROUP_BITS],
            self.address[1 + GROUP_BITS :],
        )
        chosen = Signal.like(group)
        values = []
        for n, first in enumerate(range(0, len(totals), 1 << GROUP_BITS)):
            value = Signal(32, name=f"value_{n}")
            members = totals[first : first + (1 << GROUP_BITS)]
            lower, upper = Signal(32, name=f"lower_{n}"), Signal(32, name=f"upper_{n}")
            m.d.comb += [
                lower.eq(select([total[:32] for total in members], within)),
                upper.eq(select([total[32:] for total in members], within)),
            ]
            m.d.sync += value.eq(Mux(half, upper, lower))
            values.append(value)
        m.d.sync += chosen.eq(group)
        m.d.comb += self.value.eq(select(values, chosen))
        return m
