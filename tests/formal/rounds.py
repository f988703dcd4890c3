"""Proof: two versions suffice (`docs/protocol.md` section 7), for any number of rounds.

A model of the rules alone: one slot's state (section 5.3), N workers (section 6), and a network
that may lose, repeat and delay everything. Rounds have 32 bits and go on for ever. A worker's
outstanding round tells what it may have sent. Of the results one is watched, which may be any: it
is ordered at any time, looked at once more at any later time, read from its version at any later
time, and may arrive anywhere, any number of times, for as long as packets live (2**31 rounds).

It is shown that whoever accepts the watched result gets the whole sum of the round that it waits
for, and that a round's version is taken for another only when every worker has the result.
"""

from amaranth.asserts import AnySeq
from amaranth.hdl import (
    Array,
    Assert,
    Cat,
    Const,
    Cover,
    Elaboratable,
    Module,
    Mux,
    Signal,
    Value,
)

from tests.formal import seams
from tests.formal.contracts import choose
from tests.formal.seams import at_most

__all__ = ["RoundsHarness"]

GUARDS = ("versions", "exact round", "own header", "full before next")
"""The values of `without`: the rules of section 7 that can be taken away."""


class RoundsHarness(Elaboratable):
    """See above.

    Args:
        workers: N.
        without: A guard to be left out.
    """

    def __init__(self, workers: int, without: str = "") -> None:
        assert without in ("", *GUARDS), without
        self._workers = workers
        self._without = without

    def _has(self, guard: str) -> bool:
        return self._without != guard

    def elaborate(self, platform: object) -> Module:
        m = Module()
        numbers = range(self._workers)
        # The slot: R, who is in, and the round whose sum each version holds.
        latest, seen = Signal(32), Signal(self._workers, init=-1)
        full = seen.all()
        holds = [Signal(32, name=f"holds_{v}") for v in range(2)]
        held = [Signal(name=f"held_{v}") for v in range(2)]
        complete = Mux(full, latest, (latest - 1)[:32])
        # The workers: the round that each has outstanding, or will send next.
        outstanding = [Signal(32, init=1, name=f"outstanding_{n}") for n in numbers]
        opened = Signal(2)

        def version(round_: Value) -> Value:
            return round_[0] if self._has("versions") else Const(0, 1)

        # One packet in each step: DATA of any round that its worker has reached.
        sender, sent = Signal(range(self._workers)), Signal(32)
        arrives = Signal()
        m.d.comb += [
            sender.eq(AnySeq(len(sender))),
            sent.eq(AnySeq(32)),
            arrives.eq(AnySeq(1)),
        ]
        choose(m, sender < self._workers, "a worker")
        seams.WORKERS_ROUNDS.assume(m, Const(1), sent, Array(outstanding)[sender])
        may_open = full if self._has("full before next") else Const(1)
        opens, adds = Signal(), Signal()
        m.d.comb += [
            opens.eq(arrives & (sent == (latest + 1)[:32]) & may_open),
            adds.eq(arrives & (sent == latest) & (opened != 0) & ~seen.bit_select(sender, 1)),
        ]
        with m.If(opens):
            m.d.sync += [latest.eq(sent), seen.eq(1 << sender)]
            with m.If(~opened[1]):
                m.d.sync += opened.eq(opened + 1)
            for v in range(2):
                with m.If(version(sent) == v):
                    m.d.sync += [holds[v].eq(sent), held[v].eq(1)]
                    # The version that is taken held round r - 2: nobody may still need that.
                    for own in outstanding:
                        m.d.comb += Assert(
                            ~held[v] | at_most((holds[v] + 1)[:32], own),
                            "a version is taken while a worker needs it",
                        )
        with m.If(adds):
            m.d.sync += seen.eq(seen | (1 << sender)[: self._workers])

        # The watched result.
        ordered, looked, away = Signal(), Signal(), Signal()
        claimed, label, found = Signal(32), Signal(32), Signal(32)
        whole = Signal()
        choice = AnySeq(32)
        replays = full & (choice == latest) | (choice == (latest - 1)[:32])
        known = (
            (opened > Mux(choice == latest, 0, 1)) if self._without != "versions" else opened != 0
        )
        with m.If(AnySeq(1) & ~ordered & replays & known):
            m.d.sync += [ordered.eq(1), claimed.eq(choice)]
        with m.If(AnySeq(1) & ordered & ~looked):
            near = (claimed == latest) | (claimed == (latest - 1)[:32])
            m.d.sync += looked.eq(near)
        with m.If(AnySeq(1) & looked & ~away):
            read = Array(holds)[version(claimed)]
            m.d.sync += [
                away.eq(1),
                # Without a header of its own: the round that the slot has come to.
                label.eq(claimed if self._has("own header") else complete),
                found.eq(read),
                whole.eq(full | (read != latest)),
            ]
        seams.PACKET_LIFE.assume(m, ordered, claimed, (latest + 1)[:32])

        for n in numbers:
            own = outstanding[n]
            exact = self._has("exact round")
            accepts = own == label if exact else own[0] == label[0]
            takes_watched = Signal(name=f"takes_watched_{n}")
            m.d.comb += takes_watched.eq(away & accepts & AnySeq(1))
            with m.If(takes_watched):
                m.d.sync += own.eq(own + 1)
                m.d.comb += [
                    Assert(found == own, "a worker takes another round's result"),
                    Assert(whole, "a worker takes a sum that is not whole"),
                ]
            # By any other result, of which the same holds.
            with m.Elif(AnySeq(1) & at_most(own, complete)):
                m.d.sync += own.eq(own + 1)
            if n:
                m.d.comb += Cover(takes_watched & (outstanding[0] == (own + 1)[:32]))
        m.d.comb += Cover(opened == 2)

        # A rule that is left out has to show in what the workers get, not in what a proof rests on.
        if self._without in ("", "full before next"):
            self._tie(m, latest, seen, full, holds, held, complete, outstanding, opened)
            packet = (ordered, looked, away, claimed, label, found, whole)
            self._tie_result(m, complete, *packet, outstanding, opened, latest)
        return m

    def _tie(
        self,
        m: Module,
        latest: Signal,
        seen: Signal,
        full: Value,
        holds: list[Signal],
        held: list[Signal],
        complete: Value,
        outstanding: list[Signal],
        opened: Signal,
    ) -> None:
        """Assert what holds in every step, without which induction knows too little."""
        m.d.comb += Assert(seen != 0)
        with m.If(opened == 0):
            m.d.comb += Assert(full)
        m.d.comb += Assert(opened != 3)
        for v in range(2):
            m.d.comb += Assert(held[v] == (opened > Mux(latest[0] == v, 0, 1)))
            with m.If(held[v]):
                m.d.comb += Assert(
                    holds[v] == Mux(latest[0] == v, latest, (latest - 1)[:32]),
                    "the versions hold R and R - 1",
                )
        for n, own in enumerate(outstanding):
            # Waits for the result of its latest contribution, or has it.
            merged = Mux(seen[n], latest, (latest - 1)[:32])
            m.d.comb += Assert(
                (own == merged) | ((own == (merged + 1)[:32]) & at_most(merged, complete)),
                "outstanding",
            )
            # Nobody asks for what was before the first round.
            with m.If(opened <= 1):
                m.d.comb += Assert(own != (latest - (opened == 1))[:32])

    def _tie_result(
        self,
        m: Module,
        complete: Value,
        ordered: Signal,
        looked: Signal,
        away: Signal,
        claimed: Signal,
        label: Signal,
        found: Signal,
        whole: Signal,
        outstanding: list[Signal],
        opened: Signal,
        latest: Signal,
    ) -> None:
        """Follow the watched result on its way."""
        needed = Cat(own == claimed for own in outstanding).any()
        m.d.comb += [
            Assert(~away | (looked & (label == claimed))),
            Assert(~looked | ordered),
            Assert(~ordered | (opened != 0)),
            Assert(~ordered | (opened != 1) | (claimed == latest)),
            Assert(~ordered | at_most(claimed, complete), "results are of complete rounds"),
            Assert(~(away & needed) | ((found == claimed) & whole), "who needs it gets it whole"),
        ]
