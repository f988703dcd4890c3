"""Proofs: the streams between the stages keep their rule, and queues behind them never overflow.

Each stage as it is, with anything at its other ports, at any time.
"""

from amaranth.asserts import AnySeq
from amaranth.hdl import Assert, Const, Cover, Elaboratable, Fragment, Module, Signal, Value
from amaranth.lib.wiring import Component, In

from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.receive import SUMMARY_DEPTH, SUMMARY_MARGIN, Receive
from tests.formal import seams
from tests.formal.watched import watching

__all__ = ["ReceiveHarness", "drive"]

STAGES = 7
"""Frames that may be in the receive stage's pipeline."""


def drive(m: Module, part: Component, *, constant: tuple[str, ...] = ()) -> None:
    """Anything at all inputs; local addresses that are named stay as they are."""
    for _, member, value in part.signature.flatten(part):
        if member.flow is In:
            signal = Value.cast(value)
            # Some streams are always ready.
            if not isinstance(signal, Const):
                m.d.comb += signal.eq(AnySeq(len(signal)))
    for name in constant:
        seams.LOCAL_STAYS.assume(m, Value.cast(getattr(part, name)))


class ReceiveHarness(Elaboratable):
    """`Receive.o`: summaries of frames. Frames of any length, at any time, one beat a cycle.

    Also shown: they come two cycles apart or more, which is how often `Admit` takes one.
    """

    def __init__(self, **sizes: int) -> None:
        self._parameters = Parameters(**sizes)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        receive = Receive(self._parameters)
        with watching("amaranth.lib.fifo", "afflux_hdl.lib.ram"):
            m.submodules.stage = Fragment.get(receive, platform)
        seams.STREAM.guarantee(m, receive.o, of="receive")
        waited = Signal()
        m.d.sync += waited.eq(receive.o.valid & ~receive.o.ready)
        m.d.comb += Cover(waited & receive.o.ready)
        drive(m, receive)
        queue = receive.summaries.fifo
        m.d.comb += Assert(~queue.w_en | queue.w_rdy, "the queue does not overflow")
        seams.SUMMARY.guarantee(m, receive.summaries.i)
        self._spaced(m, receive)
        if self._parameters.ports > 1:
            self._ports(m, receive)
        # Where frames are that will come to the queue, for the induction.
        index, index1 = receive.index, receive.stage1.index
        valid1, beat1 = receive.stage1.valid, receive.stage1.beat
        open_, coming = Signal(), Signal(4)
        with m.If(valid1):
            m.d.sync += open_.eq(~beat1.last)
            m.d.comb += [
                Assert((index1 != 0) == open_),
                Assert((index != 0) == ~beat1.last),
            ]
        with m.Else():
            m.d.comb += Assert((index != 0) == open_)
        m.d.comb += Assert(index <= receive.index_limit)
        m.d.comb += [
            coming.eq(
                (open_ & receive.taken)
                + (receive.stage2.ended & receive.stage2.taken)
                + sum(
                    stage.flags.ended & ~stage.flags.overflow
                    for stage in (receive.stage3, receive.stage4, receive.stage5)
                )
                + receive.push
            ),
            Assert(queue.level + coming <= SUMMARY_DEPTH - SUMMARY_MARGIN + STAGES),
        ]
        return m

    def _spaced(self, m: Module, receive: Receive) -> None:
        """Say of every two frames in a row: the later one, if it holds room, is not right after.

        So no frame of a single beat has a summary, where headers are a beat.
        """
        pushed = Signal()
        m.d.sync += pushed.eq(receive.push)
        stages = [receive.stage3.flags, receive.stage4.flags, receive.stage5.flags]
        holds = [
            receive.stage2.ended & (receive.stage2.beats > self._parameters.header_beats),
            *(flags.ended & flags.holds_room for flags in stages),
            receive.push,
        ]
        ended = [*(flags.ended for flags in stages), receive.push, pushed]
        m.d.comb += Assert(
            ~receive.stage2.ended | (receive.stage1.index == 0) | ~receive.stage1.valid
        )
        for behind, before in zip(holds, ended, strict=True):
            m.d.comb += Assert(~(behind & before), "summaries come two cycles apart")

    def _ports(self, m: Module, receive: Receive) -> None:
        """Assert that a summary has the network ports by which its frame has come."""
        seams.PORTS_OF_FRAMES.assume(m, receive.i)
        ended, ports = receive.i.valid & receive.i.payload.last, receive.i.payload.net_ports
        stages = [
            (receive.stage1.valid & receive.stage1.beat.last, receive.stage1.beat.net_ports),
            (receive.stage2.ended, receive.stage2.net_ports),
            *(
                (stage.flags.ended, stage.summary.source.net_ports)
                for stage in (receive.stage3, receive.stage4, receive.stage5)
            ),
        ]
        for n, (here, has) in enumerate(stages):
            before = ended, ports
            ended, ports = Signal(name=f"came_{n}"), Signal.like(ports, name=f"came_by_{n}")
            m.d.sync += [ended.eq(before[0]), ports.eq(before[1])]
            m.d.comb += [Assert(here == ended), Assert(~ended | (has == ports) & has.any())]
        queued = receive.summaries.i
        came, by = Signal(), Signal.like(ports)
        m.d.sync += [came.eq(ended), by.eq(ports)]
        m.d.comb += [
            Assert(~queued.valid | came),
            Assert(~queued.valid | (queued.payload.source.net_ports == by), "by its own ports"),
            Cover(queued.valid & (by == 2)),
        ]
        seams.CAME_BY_PORT.guarantee(m, queued.valid, queued.payload.source.net_ports, of="summary")
