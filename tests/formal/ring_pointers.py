"""Proof: each ring gives its entries back in order, each once, and none is written over.

`Rings` as it is, with pointers that are arbitrary until a ring's first reset, and any pushes, pops
and resets that keep its rules. Watched are one ring, any one, and one of its entries, any one.
"""

from amaranth.asserts import AnySeq
from amaranth.hdl import Assert, Cover, Elaboratable, Module, Mux, Signal, Value

from afflux_hdl.engine.rings import Rings
from tests.formal import seams
from tests.formal.inside import Inside
from tests.formal.watched import choice, watching

__all__ = ["RingsHarness"]


class RingsHarness(Elaboratable):
    """See above."""

    def __init__(self, rings: int = 4, address: int = 4) -> None:
        self._rings = rings
        self._address = address

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rings = Rings(rings=self._rings, address=self._address)
        with watching("afflux_hdl.engine.rings") as made:
            inside = Inside(rings, platform)
            m.submodules.rings = inside.fragment
        tails, heads, limits = made
        ring = choice(self._rings)
        phase = rings.phase
        m.d.comb += phase.eq(AnySeq(1))
        seams.PHASE.require(m, phase)
        seams.RINGS.require(m, rings)
        m.d.comb += [part.watched.eq(ring) for part in made]
        for name in ("push_ring", "push", "head_ring", "pop", "reset", "reset_ring"):
            m.d.comb += getattr(rings, name).eq(AnySeq(len(getattr(rings, name))))
        m.d.comb += [rings.first.eq(AnySeq(self._address)), rings.last.eq(AnySeq(self._address))]

        # The operations on the ring.
        pushes, pops, resets = Signal(), Signal(), Signal()
        ring_out, could_pop = inside["ring_out"], Signal()
        m.d.comb += [
            pushes.eq(~phase & rings.push & (rings.push_ring == ring)),
            pops.eq(~phase & rings.pop & (ring_out == ring)),
            resets.eq(phase & rings.reset & (rings.reset_ring == ring)),
        ]
        used = Signal()
        count = Signal(self._address + 1)
        m.d.sync += could_pop.eq((rings.head_ring == ring) & (count != 0) & ~resets)
        seams.RINGS_MADE.assume(m, rings, pushes, used)
        with m.If(resets):
            m.d.sync += [used.eq(1), count.eq(0)]
        with m.Else():
            m.d.sync += count.eq(count + pushes - pops)

        # Its pointers.
        head, tail = heads.content.at, tails.content.at
        first, last = limits.content.first, limits.content.last
        size, between = Signal(self._address + 1), Signal(self._address + 1)

        def behind(pointer: Value, entries: Value) -> Value:
            """Return the address so many entries on."""
            return Mux(pointer + entries > last, pointer + entries - size, pointer + entries)

        m.d.comb += [
            size.eq(last - first + 1),
            between.eq(Mux(tail > head, tail - head, tail - head + size)),
            Assert(rings.occupied.bit_select(ring, 1) == (count != 0), "occupied"),
            Assert(used | (count == 0)),
            Assert(inside["filled"].bit_select(ring, 1) == (used & (count == size)), "full"),
            Assert(inside["several"].bit_select(ring, 1) == (count > 1), "several"),
        ]
        with m.If(used):
            m.d.comb += [
                Assert((first != 0) | (last != 2**self._address - 1)),
                Assert(first < last),
                Assert((first <= head) & (head <= last)),
                Assert(heads.content.behind == behind(head, Value.cast(1))),
                Assert((first <= tail) & (tail <= last)),
                Assert(tails.content.behind == behind(tail, Value.cast(1))),
                Assert((count == 0) | (behind(tails.content.before, Value.cast(1)) == tail)),
                Assert((count == 0) | (first <= tails.content.before)),
                Assert((count == 0) | (tails.content.before <= last)),
                Assert(count <= size, "no more entries than there is room for"),
                Assert(Mux(count == 0, tail == head, count == between), "pointers"),
            ]
        was_reset, count_before = Signal(), Signal.like(count)
        m.d.sync += [was_reset.eq(resets), count_before.eq(count)]
        with m.If(was_reset):
            m.d.comb += Assert(rings.emptied == count_before, "what a reset discards is counted")
        with m.If(~phase & could_pop):
            m.d.comb += [
                Assert(inside["following_head"] == behind(head, Value.cast(1))),
                Assert(inside["limits_before"].as_value() == limits.content.as_value()),
                Assert(ring_out == ring),
                Assert(used & (count != 0)),
                Assert(rings.remains == (count > 1), "remains"),
            ]

        # One of its entries.
        watching_one, ahead, at = Signal(), Signal.like(count), Signal(self._address)
        with m.If(resets):
            m.d.sync += watching_one.eq(0)
        with m.Elif(watching_one & pops):
            m.d.sync += ahead.eq(ahead - 1)
            with m.If(ahead == 0):
                m.d.sync += watching_one.eq(0)
        with m.Elif(~watching_one & pushes & AnySeq(1)):
            m.d.sync += [watching_one.eq(1), ahead.eq(count - pops), at.eq(rings.tail)]
        with m.If(watching_one):
            m.d.comb += [
                Assert(used & (ahead < count)),
                Assert(at == behind(head, ahead), "in order"),
                Assert(~pushes | (rings.tail != at), "not written over"),
            ]
        with m.If(phase & (rings.head_ring == ring)):
            m.d.comb += Assert(rings.head == head)
        m.d.comb += [
            Cover(pops & watching_one & (ahead == 0) & (tail < head), "one that waited leaves"),
            Cover(resets & (count == size) & (size == 2), "a full ring is emptied"),
        ]
        return m
