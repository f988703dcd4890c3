"""Proof: every event is counted once, at once, and for ever.

`CounterBank` at its true size, with any events in any cycle, any counter read in any cycle, and a
reset in any. Any one counter is chosen and followed. Whatever moves between what is recent and the
total, its value is the sum of all steps since the latest reset, modulo 2**64, whatever the memory
held before that.
"""

from amaranth.asserts import AnySeq
from amaranth.hdl import (
    Array,
    Assert,
    Cover,
    Elaboratable,
    Module,
    Mux,
    ResetInserter,
    Signal,
)

from afflux_hdl.engine import counters
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.lib.counter_bank import CounterBank
from afflux_hdl.node import control
from afflux_hdl.node.parameters import NodeParameters
from tests.formal.inside import Inside
from tests.formal.watched import choice, watching

__all__ = ["CountingHarness"]

COUNTERS_OF = {
    "engine": counters.largest_steps(Parameters(bus_bits=512)),
    "node": control.largest_steps(NodeParameters(engine=Parameters(bus_bits=512))),
    # As few as there may be, for what does not go by their number.
    "few": {"one": 1, "more": 3, "some": 2},
}


class CountingHarness(Elaboratable):
    """See above.

    Args:
        of: The owner of the counters: "engine", "node", or "few".
    """

    def __init__(self, *, of: str) -> None:
        self._steps = COUNTERS_OF[of]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = len(self._steps)
        bank = CounterBank(steps=self._steps)
        with watching("afflux_hdl.lib.counter_bank") as rams:
            inside = Inside(bank, platform)
        totals, shown = rams
        reset = Signal()
        m.submodules.bank = ResetInserter(reset)(inside.fragment)
        amounts = [getattr(bank, name) for name in self._steps]
        which = Signal(range(count))
        m.d.comb += [
            reset.eq(AnySeq(1)),
            which.eq(choice(count)),
            totals.watched.eq(which),
            shown.watched.eq(which),
            bank.number.eq(AnySeq(len(bank.number))),
        ]

        for amount, most in zip(amounts, self._steps.values(), strict=True):
            drawn = Signal.like(amount)
            m.d.comb += [drawn.eq(AnySeq(len(drawn))), amount.eq(Mux(drawn > most, most, drawn))]

        # The sum of all steps, a cycle after each, as the recent ones are.
        expected, step = Signal(64), Signal(max(len(amount) for amount in amounts))
        m.d.sync += [step.eq(Array(amounts)[which]), expected.eq(expected + step)]
        with m.If(reset):
            m.d.sync += [step.eq(0), expected.eq(0)]

        # The requested value is there a cycle later.
        asked, expected_then = Signal(), Signal(64)
        m.d.sync += [asked.eq(~reset & (bank.number == which)), expected_then.eq(expected)]
        m.d.comb += [
            Assert(~asked | (bank.value == expected_then), "the value"),
            Cover(asked & (bank.value == 9)),
        ]

        # For the induction: whether the word is overwritten, and has been added to.
        turn, following, place = (inside[name] for name in ("turn", "following", "place"))
        clearing, clears = inside["clearing"], inside["clears"]
        started, cleared, moved_once = Signal(), Signal(), Signal()
        m.d.sync += [
            started.eq(1),
            cleared.eq(cleared | (place == which)),
            moved_once.eq(moved_once | (turn == which)),
        ]
        with m.If(reset):
            m.d.sync += [started.eq(0), cleared.eq(0), moved_once.eq(0)]
        m.d.comb += [
            Assert(turn < count),
            Assert(place < count),
            Assert(following == Mux(turn == count - 1, 0, turn + 1)),
            Assert(Mux(started, turn == Mux(place == count - 1, 0, place + 1), place == turn)),
            Assert(started | (turn == 0)),
            Assert(~clearing | clears),
            Assert(clearing | ~clears | (turn == 0)),
            Assert(started | clearing),
            # The last word of the first round is written when the second round has begun.
            Assert(cleared == (~clears | (started & ((place > which) | (which == 0))))),
            Assert(clearing | started),
            Assert(moved_once | (clearing & (turn <= which))),
            Assert(~moved_once | ~clearing | (turn > which)),
        ]

        # How many steps the recent ones can have in them.
        since = Signal(range(count))
        behind = Mux(turn > which, turn - which - 1, turn + count - which - 1)
        m.d.comb += since.eq(Mux(moved_once, behind, turn))
        recent = Signal(max(len(each) for each in inside["recent"]))
        m.d.comb += recent.eq(Array(inside["recent"])[which])
        for number, most in enumerate(self._steps.values()):
            chosen = which == number
            m.d.comb += [
                Assert(~chosen | (recent <= since * most), "no more than fits"),
                Assert(~chosen | (step <= most)),
            ]

        # Where all of them are.
        content = Mux(cleared, totals.content, 0)
        on_the_way = Mux(place == which, inside["moved"], 0)
        m.d.comb += [
            Assert(expected == (content + on_the_way + recent)[:64], "nothing lost, nothing twice"),
            Assert(~cleared | (shown.content == totals.content), "both memories"),
            Assert(~cleared | moved_once),
            Assert(~cleared | ~clears | (place != which) | (totals.content == 0), "from nothing"),
            Assert(
                clears | (place != which) | (inside["total"] == totals.content),
                "read before it is written",
            ),
            Assert(~cleared | (turn != which) | (inside["total_read"].data == totals.content)),
            Cover(cleared & (totals.content == 5) & moved_once & (place == which)),
        ]
        return m
