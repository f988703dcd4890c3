"""Event counters: 64 bits each, read as two registers.

::

    events ─► step ─► recent, of each counter ─┬─► moved ─► + ─► totals, a memory
                                               │            ▲       │
                                               │            └───────┤
                                               └──► value: the sum ◄┘

Sixty-four flip-flops and an adder for each counter would be a quarter of a small engine. So what is
recent is counted in a few bits, and in each cycle that of one counter, by turns, is moved into its
total. A counter's value is its total, what is recent, and what is being moved.

A reset clears no memory. In the first round of turns after it totals are overwritten and nothing is
moved; until then the totals that are read are what they will be.

Tested: `tests/sim/test_engine_counters.py`, `tests/hdl/test_counters.py`.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from afflux_hdl.contract import registers
from afflux_hdl.engine.layouts import Cause
from afflux_hdl.lib.mux_tree import select

__all__ = ["Counters"]

STEPS = {
    "bytes_in": 64,
    "bytes_out": 64,
    "blocks_accepted": 16,
    "overflows": 16,
    "results_discarded": 2**17 - 1,
}
"""Largest steps in one cycle, if not 1. All results of the largest pool are discarded at once."""

COUNTS_FROM = 0
"""Value of every counter after a reset."""


class Counters(wiring.Component):
    """Counts events.

    Latency: an event is counted two cycles later. Throughput: every counter in every cycle, by its
    largest step.
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
                    counter.name: In(range(STEPS.get(counter.name, 1) + 1))
                    for counter in self._others
                },
                "address": In(range(2 * len(registers.COUNTERS))),
                "value": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = len(registers.COUNTERS)
        depth = 1 << bits_for(count - 1)

        # Whose turn it is, and whose is next.
        turn, following = Signal(range(count)), Signal(range(count), init=1)
        clearing = Signal(init=1)
        m.d.sync += [
            turn.eq(following),
            following.eq(Mux(following == count - 1, 0, following + 1)),
        ]
        with m.If(turn == count - 1):
            m.d.sync += clearing.eq(0)

        # What is recent: the steps of two rounds of turns at most.
        recent, grown = [], []
        for number, counter in enumerate(registers.COUNTERS):
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
            most = 2 * count * STEPS.get(counter.name, 1)
            sum_now = Signal(range(most + 1), name=f"recent_{counter.name}")
            sum_next = Signal.like(sum_now, name=f"grown_{counter.name}")
            m.d.comb += sum_next.eq(sum_now + step)
            m.d.sync += [
                step.eq(amount),
                sum_now.eq(Mux(~clearing & (turn == number), 0, sum_next)),
            ]
            recent.append(sum_now)
            grown.append(sum_next)

        # A total is read a cycle ahead of its turn, and written in the cycle behind it.
        m.submodules.totals = totals = memory.Memory(shape=64, depth=depth, init=[])
        m.submodules.shown = shown = memory.Memory(shape=64, depth=depth, init=[])
        total_read, shown_read = totals.read_port(), shown.read_port(domain="comb")
        moved = Signal(max(len(value) for value in recent))
        place, total, clears = Signal.like(turn), Signal(64), Signal(init=1)
        m.d.comb += total_read.addr.eq(following)
        m.d.sync += [
            moved.eq(select(grown, turn)),
            total.eq(total_read.data),
            place.eq(turn),
            clears.eq(clearing),
        ]
        for write in (totals.write_port(), shown.write_port()):
            m.d.comb += [
                write.en.eq(1),
                write.addr.eq(place),
                write.data.eq(Mux(clears, COUNTS_FROM, total + moved)),
            ]

        # What is moved has left the recent ones and is not in the total yet.
        number, half = self.address[1:], Signal()
        found, rest = Signal(64), Signal.like(moved)
        m.d.comb += shown_read.addr.eq(number)
        m.d.sync += [
            half.eq(self.address[0]),
            found.eq(Mux(clearing | clears, COUNTS_FROM, shown_read.data)),
            rest.eq(Mux(~clears & (place == number), moved, select(recent, number))),
        ]
        value = Signal(64)
        m.d.comb += [value.eq(found + rest), self.value.eq(Mux(half, value[32:], value[:32]))]
        return m
