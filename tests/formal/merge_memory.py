"""Proof: the slot memory holds what the operations say, one after the other, without a hazard.

The merge stage and the slot memory as they are, any sequence of operations at any times. Watched
are one element of a block and one look-ahead word, at any address. A ghost of each takes an
operation's effect when the operation reads it; the memory has to hold the same when that is
written, whatever came before and comes next, and it is written in the very cycle, counted from the
operation's start, that `merge.READ_BEHIND_WRITE` rests on: deliveries leave when operations begin.
And the stage is idle only when no block is left to be written.
"""

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import Assert, Cat, Cover, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import connect

from afflux_hdl.engine.layouts import OperationKind, SlotOperation
from afflux_hdl.engine.merge import Merge
from afflux_hdl.engine.slot_memory import SlotMemory
from tests.formal import seams
from tests.formal.element import ElementHarness
from tests.formal.inside import Inside
from tests.formal.lane_alu import merged
from tests.formal.walks import rank, tie_walk
from tests.formal.watched import choice, watching

__all__ = ["MergeMemoryHarness"]


AGE_BITS = 12
"""Bits of a number of cycles; more than the largest operation takes on the narrowest bus."""


class Ghost:
    """The value that one watched element or word must have.

    Attributes:
        waiting: An operation has started that is still to read it ...
        arriving, fresh, opcode: ... and will merge this.
        offset: Where in the receive buffer that is.
        flying: It has been read and is not written yet ...
        since: ... and was read this many cycles ago, less one.
        age, place: Cycles since that operation was taken; and how many beats of words or blocks it
            has before this one.
        now: After all operations that have read it.
        before: Before the last of them.
        was_arriving, was_fresh, was_opcode: The inputs that it merges.
    """

    def __init__(self, name: str, offset_bits: int) -> None:
        self.waiting = Signal(name=f"{name}_waiting")
        self.arriving = Signal(32, name=f"{name}_arriving")
        self.fresh = Signal(name=f"{name}_fresh")
        self.opcode = Signal(2, name=f"{name}_opcode")
        self.offset = Signal(offset_bits, name=f"{name}_offset")
        self.flying = Signal(name=f"{name}_flying")
        self.since = Signal(3, name=f"{name}_since")
        self.age = Signal(AGE_BITS, name=f"{name}_age")
        self.place = Signal(AGE_BITS, name=f"{name}_place")
        self.now = Signal(32, name=f"{name}_now")
        self.before = Signal(32, name=f"{name}_before")
        self.was_arriving = Signal(32, name=f"{name}_was_arriving")
        self.was_fresh = Signal(name=f"{name}_was_fresh")
        self.was_opcode = Signal(2, name=f"{name}_was_opcode")
        self.next = Signal(32, name=f"{name}_next")


class MergeMemoryHarness(ElementHarness):
    """See above."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        with watching("afflux_hdl.lib.ram") as rams:
            memory = SlotMemory(p)
            m.submodules.memory = Inside(memory, platform).fragment
        merge = Merge(p)
        parts = Inside(merge, platform)
        m.submodules.merge = parts.fragment

        phase = Signal()
        m.d.comb += [phase.eq(AnySeq(1)), merge.phase.eq(phase), memory.phase.eq(phase)]
        seams.PHASE.require(m, phase)
        connect(m, merge.read_block, memory.merge_block)
        connect(m, merge.read_words, memory.merge_words)
        connect(m, merge.write_block, memory.write_block)
        connect(m, merge.write_words, memory.write_words)
        # The transmit side reads what it likes.
        m.d.comb += [
            memory.send_block.address.eq(AnySeq(p.block_address_bits)),
            memory.send_words.address.eq(AnySeq(p.words_address_bits)),
        ]

        # Operations: any.
        operation = data.View(SlotOperation(p), AnySeq(data.Layout.cast(SlotOperation(p)).size))
        incoming = Signal(SlotOperation(p))
        m.d.comb += [
            incoming.eq(operation),
            merge.i.payload.eq(incoming),
            merge.i.valid.eq(AnySeq(1)),
        ]
        seams.OPERATION.require(m, merge.i, lanes=p.lanes)
        starts = merge.i.valid & merge.i.ready
        merges = incoming.kind == OperationKind.MERGE

        # The watched place: slot, version, lane, beat of a block; beat of the words.
        slot, version = AnyConst(p.slot_bits), AnyConst(1)
        lane, beat = choice(p.lanes), AnyConst(p.beat_bits)
        word_beat: Value = AnyConst(max(1, p.words_beat_bits))[: p.words_beat_bits]
        block_at = Signal(p.block_address_bits)
        words_at = Signal(p.words_address_bits)
        m.d.comb += [
            block_at.eq(Cat(beat, lane, version, slot)),
            words_at.eq(Cat(word_beat, version, slot)),
        ]
        block_rams, words_rams = rams[:2], rams[2:]
        for ram in block_rams:
            m.d.comb += ram.watched.eq(block_at[1:])
        block_content = Mux(beat[0], block_rams[1].content, block_rams[0].content)
        if len(words_rams) == 2:
            for ram in words_rams:
                m.d.comb += ram.watched.eq(words_at[1:])
            words_content = Mux(words_at[0], words_rams[1].content, words_rams[0].content)
        else:
            m.d.comb += words_rams[0].watched.eq(words_at)
            words_content = words_rams[0].content

        here = (incoming.delivery.slot == slot) & (incoming.version == version) & merges
        block, words = Ghost("block", p.offset_bits), Ghost("words", p.offset_bits)
        # Words are written this many cycles after they are read, and blocks.
        to_words, to_block = (1 if p.header_beats == 1 else 2), 3 + p.ram_output_register
        first_words = 1 if p.header_beats == 1 else 2
        first_block = first_words + p.header_beats
        place = rank(incoming.present, lane) * p.block_beats + beat
        # With output registers what is addressed is known a cycle earlier: words of one beat with
        # the operation that is taken, and the receive buffer.
        asked_words: Value = merge.read_words.address
        asked = merge.receive.address
        if p.ram_output_register:
            asked = Signal.like(merge.receive.address)
            m.d.sync += asked.eq(merge.receive.address)
            reads_on = parts["with_words"] | parts["with_blocks"]
            m.d.comb += Assert(~reads_on | (asked == parts["offset"]), "what comes was asked for")
            if p.header_beats == 1:
                asked_words = Signal.like(merge.read_words.address)
                m.d.sync += asked_words.eq(merge.read_words.address)
                asked_right = asked_words == parts["words_address"]
                m.d.comb += Assert(~parts["with_words"] | asked_right, "words were asked for")
        for ghost, hit, fresh, opcode, offset, reads, address, at, write, content, times in (
            (
                block,
                here & incoming.present.bit_select(lane, 1),
                incoming.fresh.bit_select(lane, 1),
                incoming.opcode,
                incoming.start + p.header_beats + place,
                parts["with_blocks"],
                merge.read_block.address,
                block_at,
                merge.write_block,
                block_content,
                (place, first_block, to_block),
            ),
            (
                words,
                here,
                incoming.opening,
                3,
                incoming.start + word_beat,
                parts["with_words"],
                asked_words,
                words_at,
                merge.write_words,
                words_content,
                (word_beat, first_words, to_words),
            ),
        ):
            before, first, late = times
            writes = write.enable & (write.address == at)
            reading = reads & (address == at)
            effect = Mux(
                ghost.fresh, ghost.arriving, merged(ghost.opcode, ghost.now, ghost.arriving)
            )
            m.d.comb += ghost.next.eq(Mux(reading, effect, ghost.now))
            m.d.sync += [
                ghost.since.eq(ghost.since + 1),
                ghost.age.eq(ghost.age + 1),
                ghost.now.eq(ghost.next),
            ]
            with m.If(writes):
                m.d.sync += ghost.flying.eq(0)
            with m.If(reading):
                m.d.sync += [
                    ghost.waiting.eq(0),
                    ghost.flying.eq(1),
                    ghost.since.eq(0),
                    ghost.before.eq(ghost.now),
                    ghost.was_arriving.eq(ghost.arriving),
                    ghost.was_fresh.eq(ghost.fresh),
                    ghost.was_opcode.eq(ghost.opcode),
                ]
            with m.If(starts & hit):
                m.d.sync += [
                    ghost.waiting.eq(1),
                    ghost.arriving.eq(AnySeq(32)),
                    ghost.fresh.eq(fresh),
                    ghost.opcode.eq(opcode),
                    ghost.offset.eq(offset),
                    ghost.age.eq(1),
                    ghost.place.eq(before),
                ]
            held = Signal(32, name=f"held_{ghost.now.name}")
            spec = merged(ghost.was_opcode, ghost.before, ghost.was_arriving)
            m.d.comb += [
                held.eq(self._word(content)),
                Assert(~reading | (ghost.waiting & ~ghost.flying), "read after it is written"),
                Assert(~writes | ghost.flying, "written after it is read"),
                Assert(~ghost.flying | (ghost.since < late), "written soon after it is read"),
                Assert(~writes | (ghost.since == late - 1), "written when it is due"),
                Assert(~reading | (ghost.age == first + ghost.place), "read when it is due"),
                Assert(held == Mux(ghost.flying, ghost.before, ghost.now), "content"),
                Assert(
                    ~ghost.flying | (ghost.now == Mux(ghost.was_fresh, ghost.was_arriving, spec)),
                    "ghost",
                ),
            ]

        # The receive buffer has the operation's words and blocks at their places.
        block_here, words_here = Signal(), Signal()
        m.d.sync += [
            block_here.eq(parts["with_blocks"] & (asked == block.offset)),
            words_here.eq(parts["with_words"] & (asked == words.offset)),
        ]
        arrives = Signal(p.checked_bits)
        m.d.comb += [
            arrives.eq(AnySeq(p.checked_bits)),
            merge.receive.data.eq(arrives),
        ]
        with m.If(block_here):
            m.d.comb += self._word(merge.receive.data).eq(block.was_arriving)
        with m.Elif(words_here):
            m.d.comb += self._word(merge.receive.data).eq(words.was_arriving)

        age = Signal(AGE_BITS)
        m.d.sync += age.eq(Mux(starts, 1, age + 1))
        self._tie(m, parts, block, words, slot, version, lane, beat, word_beat, phase, age)
        self._sent_lanes(m, parts, merge)
        self._deliveries(m, merge, incoming, starts)
        ready = ~block.waiting & ~block.flying
        m.d.comb += Assert(~merge.idle | ready, "idle when all blocks are written")
        if p.ram_output_register:
            # So what `idle` asks of this stage is there for depth only.
            behind = parts["blocks2"] | parts["blocks3"]
            m.d.comb += Assert(~parts["under_way"] | ~parts.state("TAKE") | behind)
        flying_late = block.flying & (block.since == to_block - 1)
        added = Signal()
        adds = flying_late & ~block.was_fresh & (block.was_arriving != 0)
        with m.If(adds):
            m.d.sync += added.eq(1)
        m.d.comb += Cover(added & adds & (block.now != 0), "a block is added to twice")
        return m

    def _tie(
        self,
        m: Module,
        parts: Inside,
        block: Ghost,
        words: Ghost,
        slot: Value,
        version: Value,
        lane: Value,
        beat: Value,
        word_beat: Value,
        phase: Value,
        age: Value,
    ) -> None:
        """Say what the stage's registers are while an operation waits for its turn."""
        p = self._parameters
        state = parts.state
        operation = data.View(SlotOperation(p), parts["operation"])
        remaining = parts["walk.remaining"]
        walk_beat, walk_lane = parts["walk"].beat, parts["walk"].lane
        offset = parts["offset"]
        beat_of_words = parts["word_beat"]
        lowest = Signal(len(remaining))
        tie_walk(m, parts, "walk")
        before_blocks = Signal()
        done = Signal(5)
        m.d.comb += [
            lowest.eq(remaining & -remaining),
            before_blocks.eq(state("WORDS") | (state("ALIGN") if p.header_beats > 1 else 0)),
            done.eq(sum(operation.present ^ remaining)),
            Assert(parts.in_a_state),
            Assert((remaining >> p.lanes) == 0),
        ]
        with m.If(before_blocks):
            m.d.comb += [
                Assert(remaining == operation.present),
                Assert(walk_beat == 0),
                Assert(offset == (operation.start + beat_of_words)[: len(offset)]),
                Assert(operation.kind == OperationKind.MERGE),
            ]
        with m.If(state("WORDS")):
            m.d.comb += Assert(age == (1 if p.header_beats == 1 else 2) + beat_of_words)
        if p.header_beats > 1:
            with m.If(~state("WORDS")):
                m.d.comb += Assert(beat_of_words == 0)
        else:
            m.d.comb += Assert(beat_of_words == 0)
        # The banks' phases.
        of_words = phase == beat_of_words[0] if p.header_beats > 1 else phase
        with m.If(state("WORDS")):
            m.d.comb += Assert(of_words, "words at their phase")
        if p.header_beats > 1:
            with m.If(state("ALIGN")):
                m.d.comb += [Assert(phase), Assert(age == 1)]
        with m.If(state("BLOCKS")):
            m.d.comb += [
                Assert(phase == walk_beat[0], "blocks at their phase"),
                Assert(remaining != 0),
                # Those that are done are the lowest.
                Assert((operation.present ^ remaining) < lowest),
                Assert((operation.present & remaining) == remaining),
                Assert(
                    offset
                    == (operation.start + p.header_beats + done * p.block_beats + walk_beat)[
                        : len(offset)
                    ]
                ),
                Assert(operation.kind == OperationKind.MERGE),
                Assert(
                    age
                    == (1 if p.header_beats == 1 else 2)
                    + p.header_beats
                    + done * p.block_beats
                    + walk_beat
                ),
            ]
        here = (operation.delivery.slot == slot) & (operation.version == version)
        expected = (
            operation.start + p.header_beats + rank(operation.present, lane) * p.block_beats + beat
        )[: len(offset)]
        to_come = (
            here
            & remaining.bit_select(lane, 1)
            & (before_blocks | (state("BLOCKS") & ((walk_lane != lane) | (walk_beat <= beat))))
        )
        m.d.comb += Assert(block.waiting == to_come, "the block is to come")
        with m.If(to_come):
            m.d.comb += [
                Assert(block.offset == expected),
                Assert(block.age == age),
                Assert(block.place == rank(operation.present, lane) * p.block_beats + beat),
                Assert(block.fresh == operation.fresh.bit_select(lane, 1)),
                Assert(block.opcode == operation.opcode),
            ]
        words_to_come = here & before_blocks & (beat_of_words <= word_beat)
        m.d.comb += Assert(words.waiting == words_to_come, "words are to come")
        with m.If(words_to_come):
            m.d.comb += [
                Assert(words.offset == (operation.start + word_beat)[: len(offset)]),
                Assert(words.age == age),
                Assert(words.place == word_beat),
                Assert(words.fresh == operation.opening),
                Assert(words.opcode == 3),
            ]

    def _sent_lanes(self, m: Module, parts: Inside, merge: Merge) -> None:
        """Guarantee of deliveries what was required of their operations."""
        p = self._parameters
        seams.DELIVERY.guarantee(m, merge.o, merge.phase, lanes=p.lanes)
        operation = data.View(SlotOperation(p), parts["operation"])
        sends = parts["begun"] & (operation.kind != OperationKind.RELEASE)
        m.d.comb += [
            Assert(~parts["begun"] | merge.phase),
            Assert(~sends | ((operation.delivery.header.present >> p.lanes) == 0)),
        ]

    def _deliveries(self, m: Module, merge: Merge, incoming: data.View, starts: Value) -> None:
        """Assert that a delivery leaves one cycle after its operation has been taken."""
        due, replay = Signal(), Signal()
        delivery = Signal.like(incoming.delivery)
        m.d.sync += [
            due.eq(
                starts
                & Mux(
                    incoming.kind == OperationKind.MERGE,
                    incoming.complete,
                    incoming.kind != OperationKind.RELEASE,
                )
            ),
            replay.eq(incoming.kind == OperationKind.REPLAY),
            delivery.eq(incoming.delivery),
        ]
        m.d.comb += [
            Assert(merge.o.valid == due, "deliveries come when they are due"),
            Cover(due, "a result is delivered"),
        ]
        with m.If(due):
            m.d.comb += [
                Assert(merge.o.payload.as_value() == delivery.as_value()),
                Assert(merge.o_replay == replay),
            ]
