"""Frames as the sequencer reads and writes them: two octets at a time.

Tested: `tests/hdl/test_management_parts.py`.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.lib.frame_boundary import CutByReset
from afflux_hdl.lib.packet_stream import PacketBeat

__all__ = ["FrameReader", "FrameWriter"]

BUS_BITS = 32


class FrameReader(wiring.Component):
    """Hands out a frame's octets in pairs, and sums them.

    Behind the end of a frame there are pairs of zeros, without end, until it is skipped. The sum is
    the Internet checksum's (RFC 1071), of all pairs since it was set.

    Latency: none; a pair is there with its beat. Throughput: a pair in each cycle, or a beat in
    each cycle while a frame is skipped.

    Members:
        i: Frames.
        available: There is a pair.
        pair: The two octets, the first in the low bits; octets beyond the end are 0.
        full, some: Both octets are of the frame, or the first is.
        take: Go on to the next pair. Only while `available`.
        skip: Go on to the end of the frame, until `skipped`.
        skipped: In this cycle the last beat is left behind.
        error: With `skipped`: the frame is marked as bad.
        set_sum, sum_value: Set the sum.
        sum, carry: The sum, to which the carry must still be added. A pair is in it two cycles
            after it is taken; the sum must not be set in the cycle between.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "i": In(stream.Signature(PacketBeat(BUS_BITS))),
                "available": Out(1),
                "pair": Out(16),
                "full": Out(1),
                "some": Out(1),
                "take": In(1),
                "skip": In(1),
                "skipped": Out(1),
                "error": Out(1),
                "set_sum": In(1),
                "sum_value": In(16),
                "sum": Out(16),
                "carry": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat = self.i.payload
        upper, beyond = Signal(), Signal()
        keep = Signal(2)
        m.d.comb += [
            self.available.eq(self.i.valid),
            keep.eq(Mux(beyond, 0, Mux(upper, beat.keep[2:], beat.keep[:2]))),
            self.full.eq(keep.all()),
            self.some.eq(keep[0]),
            self.pair.eq(
                Mux(upper, beat.data[16:], beat.data[:16])
                & Cat(keep[0].replicate(8), keep[1].replicate(8))
            ),
            # The last beat stays until it is skipped.
            self.i.ready.eq(Mux(beat.last, self.skip, self.skip | (self.take & upper))),
            self.skipped.eq(self.skip & self.i.valid & beat.last),
            self.error.eq(beat.error),
        ]
        with m.If(self.skip & self.i.valid):
            m.d.sync += [upper.eq(0), beyond.eq(0)]
        with m.Elif(self.take):
            m.d.sync += [upper.eq(~upper), beyond.eq(beyond | (upper & beat.last))]
        # A cycle later: nobody asks for the sum as soon.
        term, adds = Signal(16), Signal()
        m.d.sync += [term.eq(self.pair), adds.eq(self.take)]
        with m.If(self.set_sum):
            m.d.sync += [self.sum.eq(self.sum_value), self.carry.eq(0)]
        with m.Elif(adds):
            m.d.sync += Cat(self.sum, self.carry).eq(self.sum + term + self.carry)
        return m


class FrameWriter(wiring.Component):
    """Makes beats of pairs of octets. A frame has a multiple of four octets.

    A reset that cuts a frame off gives it an end, marked with an error.

    Latency: 1 cycle from the second pair of a beat. Throughput: a pair in each cycle.

    Members:
        pair: Two octets, the first in the low bits.
        put: Here is a pair. Only while `ready`.
        last: With the second pair of the frame's last beat.
        ready: A pair can be taken.
        o: Frames.
        idle: All that was put has been taken.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "pair": In(16),
                "put": In(1),
                "last": In(1),
                "ready": Out(1),
                "o": Out(stream.Signature(PacketBeat(BUS_BITS))),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        upper, ending = Signal(), Signal()
        beat = self.o.payload
        m.submodules.cut = cut = CutByReset()
        m.d.comb += [
            cut.taken.eq(self.o.valid & self.o.ready),
            cut.last.eq(beat.last),
            beat.keep.eq(0xF),
            beat.error.eq(ending),
            self.ready.eq(~self.o.valid & ~cut.cut),
            self.idle.eq(~self.o.valid),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [self.o.valid.eq(0), ending.eq(0)]
        with m.If(self.put & self.ready):
            m.d.sync += [
                beat.data.eq(Cat(beat.data[16:], self.pair)),
                upper.eq(~upper),
                beat.last.eq(self.last),
                self.o.valid.eq(upper),
            ]
        with m.If(cut.cut):
            m.d.sync += [self.o.valid.eq(1), beat.last.eq(1), ending.eq(1)]
        return m
