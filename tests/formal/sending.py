"""Proof: the transmit stage sends whole frames of what its addresses hold, by the stream rule.

The transmit stage and the slot memory as they are, any orders at any times, a MAC that stops and
goes as it likes, and a merge stage that reads and writes anything at any time. Shown are: the rule
of the stream to the MAC; that the queue before it never overflows; that a frame has as many beats
as its length field says before its seal, the last beat and the only one of which four bytes are
kept, unless output is discarded while it is composed: then none of it is sent, or what is sent ends
with an error; that each beat is read in its bank's phase, so that what goes out is what its address
held when it was read, residues included; and where in the frame a beat stands.
"""

from unittest.mock import patch

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import Assert, Cat, Cover, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import connect

from afflux_hdl.contract import wire
from afflux_hdl.engine import seal
from afflux_hdl.engine.replicate import FrameOrder
from afflux_hdl.engine.slot_memory import SlotMemory
from afflux_hdl.engine.transmit import Transmit
from tests.formal import seams
from tests.formal.element import ElementHarness
from tests.formal.inside import Inside
from tests.formal.walks import beats_sent, rank
from tests.formal.watched import WatchedMemory, choice, watching

__all__ = ["SendingHarness"]


class SendingHarness(ElementHarness):
    """See above."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        memory, transmit = SlotMemory(p), Transmit(p)
        with watching("afflux_hdl.lib.ram") as rams:
            m.submodules.memory = Inside(memory, platform).fragment
        # The queue's own words are Amaranth's to prove: its reads may give anything here.
        # Nor is it looked at what sums and checks are: they may be anything here.
        with (
            watching("amaranth.lib.fifo"),
            patch.object(seal, "tree_sum", lambda terms: AnySeq(18)),
            patch.object(seal, "fits", lambda m, word, check: AnySeq(1)),
        ):
            inside = Inside(transmit, platform)
            m.submodules.transmit = inside.fragment

        phase = Signal()
        m.d.comb += [phase.eq(AnySeq(1)), transmit.phase.eq(phase), memory.phase.eq(phase)]
        seams.PHASE.require(m, phase)
        connect(m, transmit.read_block, memory.send_block)
        connect(m, transmit.read_words, memory.send_words)
        for read in (memory.merge_block, memory.merge_words):
            m.d.comb += read.address.eq(AnySeq(len(read.address)))
        for write in (memory.write_block, memory.write_words):
            for signal in (write.enable, write.address, write.data):
                m.d.comb += signal.eq(AnySeq(len(signal)))

        order = Signal(FrameOrder(p))
        m.d.comb += [
            order.eq(AnySeq(data.Layout.cast(FrameOrder(p)).size)),
            transmit.local.as_value().eq(AnySeq(len(transmit.local.as_value()))),
            transmit.i.payload.eq(order),
            transmit.i.valid.eq(AnySeq(1)),
            transmit.o.ready.eq(AnySeq(1)),
            transmit.discard.eq(AnySeq(1)),
            transmit.cut.eq(AnySeq(1)),
        ]
        seams.CUT.require(m, transmit.cut)
        seams.ORDER.require(m, transmit.i, lanes=p.lanes)
        seams.STREAM.guarantee(m, transmit.o, of="transmit")
        output = inside["seal.output.fifo"]
        sealing = inside["seal.sealing"]
        kept = Mux(sealing, (1 << wire.SEAL_BYTES) - 1, (1 << p.bus_bytes) - 1)
        last, error = transmit.o.payload.last, transmit.o.payload.error
        m.d.comb += [
            Assert(transmit.o.payload.keep == kept, "whole beats, and the seal"),
            Assert(last == (sealing ^ error), "the seal is the last beat, or an error is"),
            Assert(~output.w_en | output.w_rdy, "the queue does not overflow"),
        ]
        issued = self._frames(m, inside, phase)
        self._contents(m, inside, rams, phase, issued)
        return m

    def _frames(self, m: Module, inside: Inside, phase: Signal) -> Signal:
        """Frames have the length that they say.

        Returns:
            Beats that have been issued of the current frame.
        """
        p = self._parameters
        order, active = inside["order"], inside["active"]
        issues = inside["in_header"] | inside["in_words"] | inside["in_blocks"]
        at = beats_sent(m, inside, p)
        length = Signal(range(p.frame_beats_max + 1))
        issued = Signal(range(p.frame_beats_max + 1))
        m.d.comb += length.eq(2 * p.header_beats + order.blocks * p.block_beats)
        with m.If(issues):
            m.d.sync += issued.eq(issued + 1)
        takes = inside["taking"]
        with m.If(takes):
            m.d.sync += issued.eq(0)
        with m.If(active):
            m.d.comb += [
                Assert(issued == at, "in its place"),
            ]
        ends = inside["last_issue"]
        m.d.comb += [
            Assert(~ends | issues),
            Assert(~issues | (ends == (issued == length - 1)), "ends at its length"),
            Assert(~takes | ~active | ends, "frames do not cut each other off"),
        ]
        self._whole(m, inside, issues, ends, issued)
        m.d.comb += [
            Cover(ends & (order.blocks == p.lanes)),
            Cover(ends & (order.blocks == 0) & order.reply),
        ]
        return issued

    def _whole(self, m: Module, inside: Inside, issues: Value, ends: Value, issued: Signal) -> None:
        """Assert that frames go into the queue whole, not at all, or with an error at their end.

        A frame is whole if none of its beats was issued while output was discarded.
        """
        p = self._parameters
        # Two cycles after it is issued a beat goes to the seal, or nowhere.
        beat = data.StructLayout(
            {"valid": 1, "ends": 1, "at": range(p.frame_beats_max), "unsent": 1}
        )
        issue, beat1, beat2 = Signal(beat), Signal(beat), Signal(beat)
        m.d.comb += [
            issue.valid.eq(issues),
            issue.ends.eq(ends),
            issue.at.eq(issued),
            issue.unsent.eq(inside["unsent"]),
        ]
        m.d.sync += [beat1.eq(issue), beat2.eq(beat1)]
        # Of the frame of the latest beat: what is due next, how many of its beats are in the queue,
        # whether one was not to be sent, and whether it has been ended with an error.
        due, kept = (Signal(range(p.frame_beats_max + 1), name=name) for name in ("due", "kept"))
        unsent, ended = Signal(), Signal()
        begins = beat2.at == 0
        is_unsent = (unsent & ~begins) | beat2.unsent
        i = inside["seal"].i
        m.d.comb += Assert(~i.valid | beat2.valid | inside["self"].cut)
        with m.If(beat2.valid):
            m.d.sync += [
                due.eq(Mux(beat2.ends, 0, beat2.at + 1)),
                kept.eq(Mux(begins, 0, kept) + i.valid),
                unsent.eq(is_unsent),
                ended.eq((ended & ~begins) | (i.valid & i.payload.error)),
            ]
            with m.If(i.valid):
                m.d.comb += [
                    Assert(begins | ~ended, "nothing behind an error"),
                    Assert(i.payload.error == is_unsent),
                    Assert(i.payload.last == (beat2.ends | is_unsent)),
                    Assert(is_unsent | (Mux(begins, 0, kept) == beat2.at), "no beat is missing"),
                    Assert(~is_unsent | (~begins & (kept != 0)), "no error without a frame"),
                ]
            with m.Else():
                m.d.comb += [
                    Assert(is_unsent, "sent unless discarded"),
                    Assert(begins | (kept == 0) | ended, "what has begun is ended"),
                ]
            m.d.comb += Cover(i.valid & i.payload.error)
        m.d.comb += Assert(
            inside["self"].discarded == (beat2.valid & beat2.ends & is_unsent), "counted"
        )
        # The pipeline, when beats come and when they do not.
        after2 = Mux(beat2.valid, Mux(beat2.ends, 0, beat2.at + 1), due)
        after1 = Mux(beat1.valid, Mux(beat1.ends, 0, beat1.at + 1), after2)
        m.d.comb += [
            Assert(~beat2.valid | (beat2.at == due)),
            Assert(~beat1.valid | (beat1.at == after2)),
            Assert(after1 == Mux(inside["active"], issued, 0)),
            Assert(inside["begun"] == (due != 0)),
            Assert(inside["dropping"] == ((due != 0) & unsent)),
            Assert((due == 0) | unsent | (kept == due)),
            Assert((due == 0) | ~unsent | (kept == 0) | ended),
            Assert((due == 0) | (ended == (unsent & (kept != 0)))),
        ]
        # What may still come in without being asked for: the end of a frame that is cut off.
        spare = Mux(inside["begun"] & ~inside["dropping"], 1, 0)
        under_way = inside["seal.valid1"] + spare
        m.d.comb += Assert(inside["seal"].level + under_way <= seal.DEPTH)

    def _contents(
        self,
        m: Module,
        inside: Inside,
        rams: list[WatchedMemory],
        phase: Signal,
        issued: Signal,
    ) -> None:
        """Assert that a beat that goes out is what its address held when it was read."""
        p = self._parameters
        order = inside["order"]
        slot, version = AnyConst(p.slot_bits), AnyConst(1)
        lane, beat = choice(p.lanes), AnyConst(p.beat_bits)
        word_beat: Value = AnyConst(max(1, p.words_beat_bits))[: p.words_beat_bits]
        block_at, words_at = Signal(p.block_address_bits), Signal(p.words_address_bits)
        m.d.comb += [
            block_at.eq(Cat(beat, lane, version, slot)),
            words_at.eq(Cat(word_beat, version, slot)),
        ]
        banks, words_banks = rams[:2], rams[2:]
        m.d.comb += [ram.watched.eq(block_at[1:]) for ram in banks]
        block_content = Mux(beat[0], banks[1].content, banks[0].content)
        if len(words_banks) == 2:
            m.d.comb += [ram.watched.eq(words_at[1:]) for ram in words_banks]
            words_content = Mux(words_at[0], words_banks[1].content, words_banks[0].content)
        else:
            m.d.comb += words_banks[0].watched.eq(words_at)
            words_content = words_banks[0].content
        of_slot = (order.slot == slot) & (order.header.round[0] == version) & ~order.reply
        # By the beat's place in the frame, not by the address that the stage gives.
        block_due = (
            inside["in_blocks"]
            & of_slot
            & order.header.present.bit_select(lane, 1)
            & (
                issued
                == 2 * p.header_beats + rank(order.header.present, lane) * p.block_beats + beat
            )
        )
        words_due = inside["in_words"] & of_slot & (issued == p.header_beats + word_beat)
        for name, due, content in (
            ("block", block_due, block_content),
            ("words", words_due, words_content),
        ):
            # Two cycles later it goes to the seal, and one later into the queue.
            due1, due2 = Signal(name=f"{name}_due_1"), Signal(name=f"{name}_due_2")
            due3 = Signal(name=f"{name}_due_3")
            kept = Cat(self._word(content), self._residue(content))
            held1 = Signal(len(kept), name=f"{name}_held_1")
            held, held3 = Signal.like(held1, name=f"{name}_held"), Signal(32, name=f"{name}_held_3")
            m.d.sync += [due1.eq(due), due2.eq(due1), held1.eq(kept), held.eq(held1)]
            m.d.sync += [due3.eq(due2), held3.eq(held)]
            beat_in, queued = inside["seal"].i.payload, inside["seal.output"].i
            with m.If(due2):
                m.d.comb += [
                    Assert(beat_in.from_memory),
                    Assert(
                        Cat(self._word(beat_in.data), beat_in.residues[self._residues]) == held,
                        "what its address held",
                    ),
                    Cover(held[:32] == 0x600DF00D),
                ]
            with m.If(due3):
                m.d.comb += Assert(
                    ~queued.valid | (self._word(queued.payload.data) == held3), "what was checked"
                )
