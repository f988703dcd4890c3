"""Proofs: the streams of the node, to the network and to the host, keep the stream rule.

Each part as it is, with anything at its other ports, at any time; where another part stands before
it, that one's stream keeps the rule. The node's `tx` is `Egress.o`, its `host_rx` a
`PacketFifo.o`; the sources of `Egress` are `Transmit.o` (`sending.py`), a `PacketFifo.o`,
`Arp.o` and `Echo.o`.
"""

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import Assert, Cat, Cover, Elaboratable, Module, Mux, ResetInserter, Signal, Value
from amaranth.lib.wiring import Component

from afflux_hdl.lib.frame_boundary import CutByReset
from afflux_hdl.lib.packet_fifo import PacketFifo
from afflux_hdl.node.arp import Arp
from afflux_hdl.node.echo import Echo
from afflux_hdl.node.egress import SHARE, Egress
from tests.formal import seams
from tests.formal.contracts import choose
from tests.formal.inside import Inside
from tests.formal.stage_streams import drive
from tests.formal.watched import WatchedMemory, watching

__all__ = ["ArpHarness", "CutHarness", "EchoHarness", "EgressHarness", "PacketFifoHarness"]

BUS_BITS = 64
"""Nothing here depends on the width but the number of beats of a header."""

FIFO_BYTES = 64

SOURCES = ("transmit", "arp", "echo", "from host")
"""The node's output: see `hdl/afflux_hdl/node/node.py`."""

FRAME_BEATS = 4
"""Of the largest frame of `Egress`'s other sources."""


class ArpHarness(Elaboratable):
    """Answers to ARP requests; the local address stays."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        arp = Arp(bus_bits=BUS_BITS)
        with watching("amaranth.lib.fifo"):
            inside = Inside(arp, platform)
            m.submodules.arp = inside.fragment
        drive(m, arp, constant=("local",))
        _expect(m, arp, Value.cast(1), "arp")
        # From the second beat on there is an answer.
        m.d.comb += [
            Assert((inside["beat"] == 0) | arp.o.valid),
            Assert(inside["beat"] < inside["beats"]),
        ]
        ended = arp.o.valid & arp.o.ready & arp.o.payload.last
        m.d.comb += Assert(~ended | (inside["beat"] == inside["beats"] - 1), "60 bytes")
        return m


class CutHarness(Elaboratable):
    """The sign to the parts that a reset has cut off a frame; resets come at any time."""

    def elaborate(self, platform: object) -> Module:
        part, m = Module(), Module()
        part.submodules.cut = cut = CutByReset()
        drive(part, cut)
        seams.CUT.guarantee(part, cut.cut)
        part.d.comb += Cover(cut.cut)
        m.submodules.part = ResetInserter(AnySeq(1))(part)
        return m


class EgressHarness(Elaboratable):
    """Frames of four sources, one after the other; a reset may have cut one off.

    Also shown: a frame's beats come out together; another source than the first begins a frame
    only when the first has none, or has sent `SHARE` beats for each of the latest frame of the
    others; the first begins one only when it is owed beats, or the others have none; and of the
    others none with a frame is passed over by more than one frame of each other.
    """

    def elaborate(self, platform: object) -> Module:
        m = Module()
        sources = len(SOURCES)
        egress = Egress(bus_bits=BUS_BITS, sources=sources, frame_beats_max=FRAME_BEATS)
        inside = Inside(egress, platform)
        m.submodules.egress = inside.fragment
        drive(m, egress)
        for i, of in zip(egress.i, SOURCES, strict=True):
            seams.STREAM.require(m, i, of=of)
        _expect(m, egress, Value.cast(1), "egress")
        seams.CUT.require(m, egress.cut)
        in_frame, whose = Signal(), Signal(range(sources))
        watched = AnyConst(2)
        choose(m, watched != 0, "a source other than the first")
        passed = Signal(range(sources + 1))
        # Beats that the first source is owed, and those of the latest frame of the others.
        owed, beats = Signal(range(SHARE * FRAME_BEATS + 1)), Signal(range(FRAME_BEATS + 1))
        others_wait = Cat(i.valid for i in egress.i[1:]).any()
        first = egress.i[0]
        with m.If(first.valid & first.ready):
            m.d.sync += owed.eq(Mux(owed == 0, 0, owed - 1))
            m.d.comb += Assert(in_frame | (owed != 0) | ~others_wait, "the others are not starved")
        for i in egress.i[1:]:
            so_far = Mux(in_frame, beats, 0)
            seams.FRAME_LENGTH.assume(m, i, so_far, FRAME_BEATS)
            with m.If(i.valid & i.ready):
                m.d.sync += [owed.eq(Mux(in_frame, owed, 0) + SHARE), beats.eq(so_far + 1)]
                m.d.comb += Assert(in_frame | (owed == 0) | ~first.valid, "the first has its share")
        m.d.comb += [
            Assert(owed == inside["owed"]),
            Assert(inside["owes"] == (owed != 0)),
            Assert(owed <= SHARE * beats),
            Assert(~in_frame | (whose == 0) | (owed == SHARE * beats)),
            Assert(beats <= FRAME_BEATS),
            Cover((owed == 1) & in_frame & (whose == 0)),
        ]
        for n, i in enumerate(egress.i):
            taken = i.valid & i.ready
            with m.If(taken):
                m.d.comb += Assert(~in_frame | (whose == n), "a frame's beats stay together")
                m.d.sync += [in_frame.eq(~i.payload.last), whose.eq(n)]
            with m.If(watched == n):
                with m.If(~i.valid | taken):
                    m.d.sync += passed.eq(0)
                for other, j in enumerate(egress.i):
                    starts = j.valid & j.ready & ~in_frame
                    if other not in (0, n):
                        with m.If(i.valid & starts):
                            m.d.sync += passed.eq(passed + 1)
        latest, latest_other = inside["latest"], inside["latest_other"]
        # The turns of others that are left before the watched one's, if it has had none since.
        left = Mux(latest_other >= watched, latest_other - watched, latest_other + 3 - watched)
        m.d.comb += [
            Assert(passed < sources - 1, "each source has its turn"),
            Assert(passed <= left),
            Assert(latest_other != 0),
            Assert(in_frame == inside["in_frame"]),
            Assert(~in_frame | (whose == latest)),
            Assert(~in_frame | (whose == 0) | (whose == latest_other)),
        ]
        return m


class PacketFifoHarness(Elaboratable):
    """Whole frames, to the host or from it.

    Args:
        lossy, late_ready: As of the FIFO.
    """

    def __init__(self, *, lossy: bool, late_ready: bool = False) -> None:
        self._lossy = lossy
        self._late_ready = late_ready

    def elaborate(self, platform: object) -> Module:
        m = Module()
        fifo = PacketFifo(
            bus_bits=BUS_BITS,
            depth_bytes=FIFO_BYTES,
            lossy=self._lossy,
            late_ready=self._late_ready,
        )
        with watching("afflux_hdl.lib.ram") as rams:
            inside = Inside(fifo, platform)
            m.submodules.fifo = inside.fragment
        drive(m, fifo)
        seams.CUT.require(m, fifo.cut)
        here = tie_packet_fifo(m, inside, rams[0], FIFO_BYTES * 8 // BUS_BITS)
        _expect(m, fifo, here, "to host" if self._lossy else "from host")
        if self._lossy:
            m.d.comb += Assert(fifo.i.ready, "never stalls")
        else:
            # A frame that finds it full is lost from then on.
            m.d.comb += Assert(~fifo.blocked | fifo.i.ready, "never stalls while blocked")
        return m


class EchoHarness(Elaboratable):
    """Replies to echo requests; the local address stays."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        echo = Echo(bus_bits=BUS_BITS, buffer_bytes=FIFO_BYTES)
        with watching("amaranth.lib.fifo", "afflux_hdl.lib.ram") as made:
            inside = Inside(echo, platform)
            m.submodules.echo = inside.fragment
        drive(m, echo, constant=("local",))
        depth = FIFO_BYTES * 8 // BUS_BITS
        words = BUS_BITS + BUS_BITS // 8
        (ram,) = (each for each in made if each.depth == depth and len(each.content) == words)
        here = tie_packet_fifo(m, inside.part("buffer"), ram, depth)
        _expect(m, echo, here, "echo")
        return m


def _expect(m: Module, part: Component, here: Value, of: str) -> None:
    """Guarantee the rule of `o`; of its payload where `here`, which is any address."""
    seams.STREAM.guarantee(m, part.o, here, of=of)
    waited = Signal()
    m.d.sync += waited.eq(part.o.valid & ~part.o.ready)
    m.d.comb += Cover(waited & part.o.ready & part.o.payload.last)


def tie_packet_fifo(m: Module, inside: Inside, ram: WatchedMemory, depth: int) -> Value:
    """Say what a packet FIFO's registers are.

    Returns:
        Whether the beat at its head is the watched one.
    """
    tail, start, head = inside["tail"], inside["start"], inside["head"]
    watched = AnyConst(len(ram.watched))
    bits = len(tail)
    m.d.comb += [
        ram.watched.eq(watched),
        Assert((tail - head)[:bits] <= depth, "no beat is written over"),
        Assert((start - head)[:bits] <= (tail - head)[:bits]),
    ]
    m.d.comb += Assert(~inside.whole.o.valid | (head != start))
    return head[: bits - 1] == watched
