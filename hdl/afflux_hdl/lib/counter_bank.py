"""A bank of event counters, 64 bits each, of which one value is read at a time.

::

    events ─► step ─► recent, of each counter ─┬─► moved ─► + ─► totals, a memory
                                               │            ▲       │
                                               │            └───────┤
                                               └──► value: the sum ◄┘

Sixty-four flip-flops and an adder for each counter would be a quarter of a small engine. So what is
recent is counted in a few bits, and in each cycle that of one counter, by turns, is moved into its
total. A counter's value is its total, what is recent, and what is being moved.

A reset clears no memory. In the first round of turns after it a total is what is moved, whatever it
was; one whose turn has not come yet counts as none.

Proved: `tests/formal/counting.py`. Tested: `tests/hdl/test_counters.py`,
`tests/sim/test_engine_counters.py`.
"""

from collections.abc import Mapping

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from afflux_hdl.lib.mux_tree import select

__all__ = ["CounterBank"]

COUNTS_FROM = 0
"""Value of every counter after a reset."""

COUNTERS_MIN = 3


class CounterBank(wiring.Component):
    """Counts events.

    Latency: an event is counted two cycles later. Throughput: every counter in every cycle, by its
    largest step.
    Overflow: counters wrap.

    Args:
        steps: The counters' names, in the order of their numbers, and the largest step of each in
            one cycle.

    Raises:
        ValueError: If there are fewer than three: a total would be read before it is written.

    Members:
        (name of a counter): By how much it grows in this cycle.
        number: Number of a counter.
        value: Its value, one cycle later. Reading has no effect. Undefined if there is none of
            this number.
    """

    def __init__(self, *, steps: Mapping[str, int]) -> None:
        self._steps = dict(steps)
        if len(self._steps) < COUNTERS_MIN:
            raise ValueError(f"{len(self._steps)} counters are too few, at least {COUNTERS_MIN}")
        super().__init__(
            {
                **{name: In(range(most + 1)) for name, most in self._steps.items()},
                "number": In(range(len(self._steps))),
                "value": Out(64),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = len(self._steps)
        depth = 1 << bits_for(count - 1)

        # The counter whose turn it is, and the next one.
        turn, following = Signal(range(count)), Signal(range(count), init=1)
        clearing = Signal(init=1)
        m.d.sync += [
            turn.eq(following),
            following.eq(Mux(following == count - 1, 0, following + 1)),
        ]
        with m.If(turn == count - 1):
            m.d.sync += clearing.eq(0)

        # The recent events: the steps of less than a round of turns, and with this one's of a
        # round.
        recent, grown = [], []
        for number, (name, most) in enumerate(self._steps.items()):
            amount = getattr(self, name)
            step = Signal.like(amount, name=f"step_{name}")
            sum_now = Signal(range((count - 1) * most + 1), name=f"recent_{name}")
            sum_next = Signal(range(count * most + 1), name=f"grown_{name}")
            m.d.comb += sum_next.eq(sum_now + step)
            m.d.sync += [
                step.eq(amount),
                sum_now.eq(Mux(turn == number, 0, sum_next)),
            ]
            recent.append(sum_now)
            grown.append(sum_next)

        # A total is read a cycle ahead of its turn, and written in the cycle behind it.
        m.submodules.totals = totals = memory.Memory(shape=64, depth=depth, init=[])
        m.submodules.shown = shown = memory.Memory(shape=64, depth=depth, init=[])
        total_read, shown_read = totals.read_port(), shown.read_port(domain="comb")
        moved = Signal(max(len(value) for value in grown))
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
                write.data.eq(Mux(clears, COUNTS_FROM, total) + moved),
            ]

        # A count that is moved has left the recent ones and is not in the total yet.
        found, rest = Signal(64), Signal.like(moved)
        m.d.comb += shown_read.addr.eq(self.number)
        m.d.sync += [
            found.eq(Mux(clears & (self.number >= place), COUNTS_FROM, shown_read.data)),
            rest.eq(Mux(place == self.number, moved, select(recent, self.number))),
        ]
        m.d.comb += self.value.eq(found + rest)
        # For proofs.
        self.turn, self.following, self.clearing, self.clears = turn, following, clearing, clears
        self.recent, self.place, self.moved, self.total = recent, place, moved, total
        self.total_read = total_read
        return m
