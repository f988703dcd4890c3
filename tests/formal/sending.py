"""Proof: the transmit stage sends whole frames of what its addresses hold, by the stream rule.

The transmit stage, the slot memory and the block notes as they are, any orders at any times, a MAC
that stops and goes as it likes, and a merge stage that reads and writes anything at any time. What
is sent of a block's words is not looked at here (`round.py`, and the tests of `SendWord`):
`stand_in_words.py` stands for that, and tells the slot's word, its note and its order. Shown are:
the rule of the stream to the MAC; that the queue before it never overflows; that a frame has as
many beats as its length field says before its seal, the last beat and the only one of which four
bytes are kept, unless output is discarded while it is composed: then none of it is sent, or what is
sent ends with an error; that each beat is read in its bank's phase, so that what goes out is what
its address held when it was read, residues included, with its block's note and order; and where in
the frame a beat stands.
"""

from unittest.mock import patch

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import Assert, Cat, Cover, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import connect

from afflux_hdl.contract import wire
from afflux_hdl.engine import seal
from afflux_hdl.engine.block_notes import BlockNote, BlockNotes
from afflux_hdl.engine.replicate import FrameOrder
from afflux_hdl.engine.slot_memory import SlotMemory
from afflux_hdl.engine.slot_words import ROUND_CYCLES
from afflux_hdl.engine.transmit import Transmit
from tests.formal import seams
from tests.formal.element import ElementHarness
from tests.formal.inside import Inside
from tests.formal.stand_in_words import Sent, sent_word, watching_words
from tests.formal.walks import beats_sent, block_beats_of, rank
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
        with watching("afflux_hdl.lib.ram") as note_rams:
            notes = BlockNotes(p)
            m.submodules.notes = Inside(notes, platform).fragment
        # The queue's own words are Amaranth's to prove: its reads may give anything here.
        # Nor is it looked at what sums and checks are: they may be anything here.
        with (
            watching("amaranth.lib.fifo"),
            patch.object(seal, "tree_sum", lambda terms: AnySeq(18)),
            patch.object(seal, "fits", lambda m, word, check: AnySeq(1)),
            watching_words(self._element),
        ):
            inside = Inside(transmit, platform)
            m.submodules.transmit = inside.fragment

        phase = Signal()
        m.d.comb += [phase.eq(AnySeq(1)), transmit.phase.eq(phase), memory.phase.eq(phase)]
        seams.PHASE.require(m, phase)
        connect(m, transmit.read_block, memory.send_block)
        connect(m, transmit.read_words, memory.send_words)
        connect(m, transmit.read_note, notes.send_note)
        reads = (memory.merge_block, memory.merge_words, notes.merge_exponents, notes.merge_loss)
        for read in reads:
            m.d.comb += read.address.eq(AnySeq(len(read.address)))
        writes = (memory.write_block, memory.write_words, notes.write_words, notes.write_note)
        for write in writes:
            for signal in map(Value.cast, (write.enable, write.address, write.data)):
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
        self._contents(m, inside, rams, note_rams[-1], phase, issued)
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
        # Seven cycles after it is issued, or eight, a beat goes to the seal, or nowhere.
        beat = data.StructLayout(
            {
                "valid": 1,
                "ends": 1,
                "at": range(p.frame_beats_max),
                "unsent": 1,
                "net_ports": p.ports,
                "is_text": 1,
                "text": 32,
            }
        )
        issue = Signal(beat)
        m.d.comb += [
            issue.valid.eq(issues),
            issue.ends.eq(ends),
            issue.at.eq(issued),
            issue.unsent.eq(inside["unsent"]),
            issue.is_text.eq((inside["section"] == 0) | inside["order"].reply),
            issue.text.eq(self._word(inside["text"])),
        ]
        if p.ports > 1:
            m.d.comb += issue.net_ports.eq(inside["order"].peer.net_ports)
        beats = [issue]
        for n in range(1, 3 + p.ram_output_register + ROUND_CYCLES):
            beats.append(Signal(beat, name=f"beat_{n}"))
            m.d.sync += beats[-1].eq(beats[-2])
        beat2 = beats[-1]
        # Of the frame of the latest beat: what is due next, how many of its beats are in the queue,
        # whether one was not to be sent, and whether it has been ended with an error.
        due, kept = (Signal(range(p.frame_beats_max + 1), name=name) for name in ("due", "kept"))
        unsent, ended = Signal(), Signal()
        begins = beat2.at == 0
        is_unsent = (unsent & ~begins) | beat2.unsent
        i = inside["seal"].i
        m.d.comb += [
            Assert(~i.valid | beat2.valid | inside.whole.cut),
            Assert(~beat2.valid | (i.payload.from_memory != beat2.is_text)),
            Assert(
                ~(beat2.valid & beat2.is_text & (beat2.at < 2 * p.header_beats))
                | (self._word(i.payload.data) == beat2.text),
                "headers in their place",
            ),
        ]
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
            inside.whole.discarded == (beat2.valid & beat2.ends & is_unsent), "counted"
        )
        # The pipeline, when beats come and when they do not.
        after: Value = due
        for earlier in beats[:0:-1]:
            m.d.comb += Assert(~earlier.valid | (earlier.at == after))
            after = Mux(earlier.valid, Mux(earlier.ends, 0, earlier.at + 1), after)
        m.d.comb += [
            Assert(after == Mux(inside["active"], issued, 0)),
            Assert(inside["begun"] == (due != 0)),
            Assert(inside["dropping"] == ((due != 0) & unsent)),
            Assert((due == 0) | unsent | (kept == due)),
            Assert((due == 0) | ~unsent | (kept == 0) | ended),
            Assert((due == 0) | (ended == (unsent & (kept != 0)))),
        ]
        # Input that may still come in without being asked for: the end of a frame that is cut off.
        spare = Mux(inside["begun"] & ~inside["dropping"], 1, 0)
        under_way = inside["seal.valid1"] + spare
        if p.ports > 1:
            self._ports(m, inside, beat2)
        m.d.comb += Assert(inside["seal"].level + under_way <= seal.DEPTH)

    def _ports(self, m: Module, inside: Inside, beat: data.View) -> None:
        """Assert that each beat leaves by the ports of its frame's order, and the seal too.

        A frame that a reset cuts off ends in a beat of which nothing is said.
        """
        seal_, output = inside["seal"], inside["seal.output"]
        came, queued = seal_.i, output.i
        m.d.comb += Assert(~beat.valid | ~came.valid | (came.payload.net_ports == beat.net_ports))
        came1 = Signal(data.StructLayout({"valid": 1, "net_ports": self._parameters.ports}))
        m.d.sync += [came1.valid.eq(came.valid), came1.net_ports.eq(came.payload.net_ports)]
        # From the queue it comes as it went in.
        o, left = seal_.o, Signal(self._parameters.ports)
        with m.If(o.valid & o.ready):
            m.d.sync += left.eq(o.payload.net_ports)
        sealing = inside["seal.sealing"]
        expected = Mux(sealing, left, output.o.payload.net_ports)
        m.d.comb += [
            Assert(~sealing | (inside["seal.sealed"] == left)),
            Assert(queued.valid == came1.valid),
            Assert(~queued.valid | (queued.payload.net_ports == came1.net_ports)),
            Assert(~o.valid | (o.payload.net_ports == expected), "the seal leaves as its frame"),
            Cover(sealing & (o.payload.net_ports == 2) & o.valid & o.ready),
        ]

    def _contents(
        self,
        m: Module,
        inside: Inside,
        rams: list[WatchedMemory],
        notes: WatchedMemory,
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
        upper = AnyConst(1) & order.partial
        before = rank(order.header.present, lane) * block_beats_of(p, order.partial)
        block_due = (
            inside["in_blocks"]
            & of_slot
            & order.header.present.bit_select(lane, 1)
            & (issued == 2 * p.header_beats + before + Mux(upper, p.block_beats, 0) + beat)
        )
        block_sent = self._sent(m, order, lane, upper, notes, block_at)
        words_due = inside["in_words"] & of_slot & (issued == p.header_beats + word_beat)
        # Words of one beat are read with the header if there are output registers.
        early = int(p.ram_output_register and p.header_beats == 1)
        if early:
            words_due = inside["in_header"] & of_slot
        in_block = block_content.word_select(self._element, p.slot_word_bits)
        in_words = Cat(self._word(words_content), self._residue(words_content))
        for name, due, kept, sooner in (
            ("block", block_due, sent_word(in_block, block_sent), 0),
            ("words", words_due, in_words, early),
        ):
            # Seven cycles later, or eight, it goes to the seal, and one later into the queue.
            due2, held = due, kept
            for n in range(2 + p.ram_output_register + ROUND_CYCLES + sooner):
                due_before, held_before = due2, held
                due2 = Signal(name=f"{name}_due_{n + 1}")
                held = Signal(len(kept), name=f"{name}_held_{n + 1}")
                m.d.sync += [due2.eq(due_before), held.eq(held_before)]
            due3, held3 = Signal(name=f"{name}_due_in"), Signal(32, name=f"{name}_held_in")
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

    def _sent(
        self,
        m: Module,
        order: data.View,
        lane: Value,
        upper: Value,
        notes: WatchedMemory,
        block_at: Value,
    ) -> data.View:
        """Return what is known of the word that an order sends of the watched lane."""
        m.d.comb += notes.watched.eq(block_at[self._parameters.beat_bits :])
        note = data.View(BlockNote, notes.content)
        sent = Signal(Sent)
        m.d.comb += [
            sent.opcode.eq(order.header.opcode),
            sent.dtype.eq(order.header.dtype),
            sent.partial.eq(order.partial),
            sent.upper.eq(upper),
            sent.rounded.eq(order.rounded),
            sent.exponent.eq(note.exponent[:-1]),
            sent.lost.eq(note.loss.lost),
            sent.wrong.eq(note.exponent.xor() | (note.loss.lost == note.loss.kept)),
            sent.all_present.eq(order.in_all.bit_select(lane, 1)),
        ]
        return sent
