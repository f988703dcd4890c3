"""Lane walk: the blocks of a packet, beat by beat, from its present bitmap.

Proved: `tests/formal/merge_memory.py`, `tests/formal/sending.py`. Tested:
`tests/hdl/test_lane_walk.py`.
"""

from collections.abc import Sequence

from amaranth.hdl import Const, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.contract import wire
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.lib.priority import lowest

__all__ = ["LaneWalk"]


def _at_most_one(bits: Sequence[Value]) -> tuple[Value, Value]:
    """Return whether any bit is set, and whether no more than one is."""
    if len(bits) == 1:
        return bits[0], Const(1, 1)
    half = len(bits) // 2
    (low_any, low), (high_any, high) = _at_most_one(bits[:half]), _at_most_one(bits[half:])
    return low_any | high_any, low & high & ~(low_any & high_any)


class LaneWalk(wiring.Component):
    """Walks through the lanes whose present bit is set, lowest first, and the beats of each block.

    Latency: `load` takes effect in the next cycle. Throughput: one beat in each cycle. The outputs
    come from registers: what they need of the bitmap is computed a block ahead.

    Members:
        load, present: Start with this bitmap; lanes that are not built are ignored.
        long: With `load`: blocks are twice as long.
        step: Go on to the next beat.
        lane: Lane of the current block.
        beat: Beat within the block.
        second: The bit above `beat` in a block that is twice as long.
        any: There is a current block; otherwise the walk is over.
        last: This is the walk's last beat.
        last_but_one: The next beat is the walk's last one.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        super().__init__(
            {
                "load": In(1),
                "present": In(wire.LANES_MAX),
                "long": In(1),
                "step": In(1),
                "lane": Out(parameters.lane_bits),
                "beat": Out(parameters.beat_bits),
                "second": Out(1),
                "any": Out(1),
                "last": Out(1),
                "last_but_one": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes = self._parameters.lanes
        remaining = Signal(lanes)
        later = Signal(lanes)
        single = Signal(init=1)
        block_ends = Signal()
        short = Signal()
        half = short | self.second
        with m.If(self.load):
            m.d.sync += [short.eq(~self.long), self.second.eq(0)]
        with m.Elif(self.step & self.beat.all()):
            m.d.sync += self.second.eq(~half)
        m.d.comb += [
            later.eq(remaining & ~(1 << self.lane)),
            block_ends.eq(self.beat.all() & half),
            self.last.eq(block_ends & single),
            self.last_but_one.eq(self.beat[1:].all() & ~self.beat[0] & single & half),
        ]

        def go_to(bitmap: Value) -> list[object]:
            # Padded to halves of equal size, so that a lane's number is a concatenation of bits.
            bits = [*bitmap, *[Const(0, 1)] * ((1 << len(self.lane)) - lanes)]
            any_set, lane = lowest(bits)
            return [
                remaining.eq(bitmap),
                self.any.eq(any_set),
                self.lane.eq(lane),
                single.eq(_at_most_one(bits)[1]),
            ]

        with m.If(self.load):
            m.d.sync += [*go_to(self.present[:lanes]), self.beat.eq(0)]
        with m.Elif(self.step):
            m.d.sync += self.beat.eq(self.beat + 1)
            with m.If(block_ends):
                m.d.sync += go_to(later)
        # For proofs.
        self.remaining, self.single, self.short = remaining, single, short
        return m
