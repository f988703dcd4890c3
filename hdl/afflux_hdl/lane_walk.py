"""Lane walk: the blocks of a packet, beat by beat, from its present bitmap."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl import wire
from afflux_hdl.parameters import Parameters

__all__ = ["LaneWalk"]


class LaneWalk(wiring.Component):
    """Walks through the lanes whose present bit is set, lowest first, and the beats of each block.

    Latency: ``load`` takes effect in the next cycle. Throughput: one beat in each cycle.

    Members:
        load, present: Start with this bitmap.
        step: Go on to the next beat.
        lane: The current block's lane.
        beat: Beat within the block.
        any: There is a current block; else the walk is over.
        last: This is the walk's last beat.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        super().__init__(
            {
                "load": In(1),
                "present": In(wire.LANES_MAX),
                "step": In(1),
                "lane": Out(parameters.lane_bits),
                "beat": Out(parameters.beat_bits),
                "any": Out(1),
                "last": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        remaining = Signal(wire.LANES_MAX)
        later = Signal(wire.LANES_MAX)
        lowest = Signal(wire.LANES_MAX)
        block_ends = Signal()
        m.d.comb += [
            lowest.eq(remaining & -remaining),
            later.eq(remaining & ~lowest),
            self.any.eq(remaining != 0),
            block_ends.eq(self.beat.all()),
            self.last.eq(block_ends & (later == 0)),
        ]
        for lane in range(self._parameters.lanes):
            with m.If(lowest[lane]):
                m.d.comb += self.lane.eq(lane)
        with m.If(self.load):
            m.d.sync += [remaining.eq(self.present), self.beat.eq(0)]
        with m.Elif(self.step):
            m.d.sync += self.beat.eq(self.beat + 1)
            with m.If(block_ends):
                m.d.sync += remaining.eq(later)
        return m
