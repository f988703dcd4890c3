"""Rings: where in one memory each of several queues begins and ends.

Proved: `tests/formal/stage_streams.py`. Tested: `tests/sim/test_engine_queues.py`.
"""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["Rings"]


class Rings(wiring.Component):
    """Keeps the pointers of rings: first in, first out, each within its own range of addresses.

    Pointers are in memories, which a reset leaves as they are: a ring is used only after its first
    `reset`, and until then it is not `occupied`.

    Latency: `tail`, `full`, `head` and `remains` in the cycle of their ring's number; `emptied` one
    cycle after `reset`. Throughput: a push, a pop and a reset in two cycles.

    Args:
        rings: Number of rings.
        address: Bits of an address.

    Members:
        phase: Alternates from cycle to cycle.
        occupied: For each ring, whether something is in it.
        push_ring, push: In phase 0: an entry is written at `tail` of this ring, which is not
            `full`.
        head_ring: In phase 1: the ring whose next entry is at `head`.
        pop: In phase 0: the entry that was addressed in the cycle before has left its ring.
        remains: In phase 0: the ring has more than that entry.
        reset, reset_ring, first, last: In phase 1: the ring is emptied, and from then on has the
            addresses from `first` to `last`, at least two. Nothing is popped from it in the next
            cycle.
        emptied: Number of entries that the ring had.
    """

    def __init__(self, *, rings: int, address: int) -> None:
        self._rings = rings
        self._address = address
        number = ceil_log2(rings)
        super().__init__(
            {
                "phase": In(1),
                "occupied": Out(rings),
                "push_ring": In(number),
                "push": In(1),
                "tail": Out(address),
                "full": Out(1),
                "head_ring": In(number),
                "head": Out(address),
                "pop": In(1),
                "remains": Out(1),
                "reset": In(1),
                "reset_ring": In(number),
                "first": In(address),
                "last": In(address),
                "emptied": Out(address),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # The address behind each pointer is kept beside it, and beside the tail the one before it.
        # Registers tell of each ring whether it is full and whether it has several entries: there
        # is no time to compute the one or to compare for the other.
        head_shape = data.StructLayout({"at": self._address, "behind": self._address})
        tail_shape = data.StructLayout({**head_shape.members, "before": self._address})
        limits_shape = data.StructLayout({"first": self._address, "last": self._address})
        m.submodules.tails = tails = memory.Memory(shape=tail_shape, depth=self._rings, init=[])
        m.submodules.heads = heads = memory.Memory(shape=head_shape, depth=self._rings, init=[])
        m.submodules.limits = limits = memory.Memory(shape=limits_shape, depth=self._rings, init=[])
        tail_write, head_write, limits_write = (
            part.write_port() for part in (tails, heads, limits)
        )
        # Where entries come in, and at a reset; and where they leave.
        tail_in, head_in, limits_in = (
            part.read_port(domain="comb") for part in (tails, heads, limits)
        )
        tail_out, head_out, limits_out = (
            part.read_port(domain="comb") for part in (tails, heads, limits)
        )

        def following(pointer: Value, within: data.View) -> Value:
            return Mux(pointer == within.last, within.first, pointer + 1)

        ring_in = Signal.like(self.push_ring)
        ring_out = Signal.like(self.head_ring)
        following_head = Signal(self._address)
        limits_before = Signal(limits_shape)
        filled, several = Signal(self._rings), Signal(self._rings)
        m.d.comb += [ring_in.eq(Mux(self.phase, self.reset_ring, self.push_ring))]
        for port in (tail_in, head_in, limits_in):
            m.d.comb += port.addr.eq(ring_in)
        for port in (head_out, limits_out):
            m.d.comb += port.addr.eq(self.head_ring)
        m.d.sync += [
            ring_out.eq(self.head_ring),
            following_head.eq(head_out.data.behind),
            limits_before.eq(limits_out.data),
        ]
        used = self.occupied.bit_select(ring_in, 1)
        m.d.comb += [
            self.tail.eq(tail_in.data.at),
            self.full.eq(filled.bit_select(self.push_ring, 1)),
            self.head.eq(head_out.data.at),
            tail_out.addr.eq(ring_out),
            self.remains.eq(several.bit_select(ring_out, 1)),
            # In phase 1 only a reset writes, in phase 0 only a push and a pop.
            tail_write.en.eq(Mux(self.phase, self.reset, self.push)),
            tail_write.addr.eq(ring_in),
            tail_write.data.before.eq(tail_in.data.at),
            tail_write.data.at.eq(Mux(self.phase, self.first, tail_in.data.behind)),
            tail_write.data.behind.eq(
                Mux(self.phase, self.first + 1, following(tail_in.data.behind, limits_in.data))
            ),
            head_write.en.eq(Mux(self.phase, self.reset, self.pop)),
            head_write.addr.eq(Mux(self.phase, self.reset_ring, ring_out)),
            head_write.data.at.eq(Mux(self.phase, self.first, following_head)),
            head_write.data.behind.eq(
                Mux(self.phase, self.first + 1, following(following_head, limits_before))
            ),
            limits_write.en.eq(self.phase & self.reset),
            limits_write.addr.eq(self.reset_ring),
            limits_write.data.first.eq(self.first),
            limits_write.data.last.eq(self.last),
        ]
        for n in range(self._rings):
            enters = ~self.phase & self.push & (self.push_ring == n)
            leaves = ~self.phase & self.pop & (ring_out == n)
            with m.If(enters):
                m.d.sync += self.occupied[n].eq(1)
            with m.Elif(leaves & ~self.remains):
                m.d.sync += self.occupied[n].eq(0)
            # Two entries, one of which leaves: the one behind the head is the one before the tail.
            with m.If(leaves & ~enters):
                m.d.sync += several[n].eq(several[n] & (tail_out.data.before != following_head))
            with m.Elif(enters & ~leaves):
                m.d.sync += several[n].eq(self.occupied[n])
            # An entry that leaves a ring makes room for one that comes in.
            with m.If(leaves):
                m.d.sync += filled[n].eq(0)
            with m.Elif(enters & (tail_in.data.behind == head_in.data.at)):
                m.d.sync += filled[n].eq(1)
            with m.If(self.phase & self.reset & (self.reset_ring == n)):
                m.d.sync += [self.occupied[n].eq(0), several[n].eq(0), filled[n].eq(0)]

        # A ring whose pointers are equal is full if it is not empty.
        size, between = Signal(self._address), Signal(self._address)
        m.d.comb += [
            size.eq(limits_in.data.last - limits_in.data.first + 1),
            between.eq(tail_in.data.at - head_in.data.at),
        ]
        with m.If(self.phase & self.reset & used):
            m.d.sync += self.emptied.eq(
                Mux(tail_in.data.at > head_in.data.at, between, between + size)
            )
        with m.Else():
            m.d.sync += self.emptied.eq(0)
        # For proofs.
        self.ring_out, self.filled, self.several = ring_out, filled, several
        self.following_head, self.limits_before = following_head, limits_before
        return m
