"""Proof: the slot memory holds what the operations say, one after the other, without a hazard.

The merge stage, the slot memory and the block notes as they are, any sequence of operations at any
times. Watched are one element of a block and one look-ahead word, at any address. A ghost of each
takes an operation's effect when its beat is asked for in the receive buffer; the memory has to hold
the same when that is written, whatever came before and comes next, and it is written in the very
cycle, counted from the operation's start, that `merge.READ_BEHIND_WRITE` rests on. Deliveries leave
when they are due. And the stage is idle only when no block is left to be written.

What a block's words become is not looked at here (`align.py`, `lane_alu.py`, and the tests of
`MergeWord`). `stand_in_words.py` stands for that, by whose result all that is merged can be told:
the word, of partial sums that of the lower plane too, E of the block, the operation, what the slot
held, and whether that was nothing.
"""

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import Assert, Cat, Const, Cover, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import connect
from amaranth.utils import ceil_log2

from afflux_hdl.engine.block_notes import EXPONENT_BITS, BlockNotes
from afflux_hdl.engine.layouts import OperationKind, SlotOperation
from afflux_hdl.engine.merge import Merge
from afflux_hdl.engine.slot_memory import SlotMemory
from afflux_hdl.engine.slot_words import Operation
from tests.formal import seams
from tests.formal.element import ElementHarness
from tests.formal.inside import Inside
from tests.formal.stand_in_words import Merged, merged_block, watching_words
from tests.formal.walks import block_beats_of, place_in_block, rank, tie_walk
from tests.formal.watched import WatchedMemory, choice, watching

__all__ = ["MergeMemoryHarness"]


BLOCK_DELAY = 5
"""Cycles from asking for a block's beat to its write; one more if what arrives waits."""

AGE_BITS = 12
"""Bits of a number of cycles; more than the largest operation takes on the narrowest bus."""


class Ghost:
    """The value that one watched element or word must have.

    Attributes:
        waiting: An operation has started that is still to ask for it ...
        given: ... and will merge this.
        offset, lower_offset: Where in the receive buffer that is; of partial sums the lower plane.
        flying: It has been asked for and is not written yet ...
        since: ... and was asked for this many cycles ago, less one.
        age, place: Cycles since that operation was taken; and how many beats of words or blocks it
            has before this one.
        now: After all operations that have asked for it.
        before: Before the last of them.
        was: What that one merges.
    """

    def __init__(self, name: str, offset_bits: int) -> None:
        self.waiting = Signal(name=f"{name}_waiting")
        self.given = Signal(Merged, name=f"{name}_given")
        self.offset = Signal(offset_bits, name=f"{name}_offset")
        self.lower_offset = Signal(offset_bits, name=f"{name}_lower_offset")
        self.flying = Signal(name=f"{name}_flying")
        self.since = Signal(3, name=f"{name}_since")
        self.age = Signal(AGE_BITS, name=f"{name}_age")
        self.place = Signal(AGE_BITS, name=f"{name}_place")
        self.now = Signal(32, name=f"{name}_now")
        self.before = Signal(32, name=f"{name}_before")
        self.was = Signal(Merged, name=f"{name}_was")
        self.next = Signal(32, name=f"{name}_next")


def _known(operation: data.View) -> Value:
    """Return what a block's words are told of their operation, in the order of `Operation`."""
    header = operation.delivery.header
    return Cat(
        operation.opcode,
        header.opcode,
        header.dtype[:2],
        operation.partial,
        operation.delivery.rounded,
    )


def _merged_words(held: Value, given: data.View) -> Value:
    """Return what a look-ahead word becomes."""
    return Mux(given.fresh | (given.arriving < held), given.arriving, held)


class MergeMemoryHarness(ElementHarness):
    """See above."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        with watching("afflux_hdl.lib.ram") as rams:
            memory = SlotMemory(p)
            m.submodules.memory = Inside(memory, platform).fragment
        with watching("afflux_hdl.lib.ram") as note_rams:
            notes = BlockNotes(p)
            m.submodules.notes = Inside(notes, platform).fragment
        merge = Merge(p)
        with watching_words(self._element):
            parts = Inside(merge, platform)
        m.submodules.merge = parts.fragment

        phase = Signal()
        m.d.comb += [phase.eq(AnySeq(1)), merge.phase.eq(phase), memory.phase.eq(phase)]
        seams.PHASE.require(m, phase)
        for name in ("block", "words"):
            connect(m, getattr(merge, f"read_{name}"), getattr(memory, f"merge_{name}"))
            write = getattr(merge, f"write_{name}")
            connect(m, write, getattr(memory, f"write_{name}"))
        connect(m, merge.read_exponents, notes.merge_exponents)
        connect(m, merge.write_words, notes.write_words)
        connect(m, merge.read_loss, notes.merge_loss)
        connect(m, merge.write_note, notes.write_note)
        # The transmit side reads what it likes.
        for read in (memory.send_block, memory.send_words, notes.send_note):
            m.d.comb += read.address.eq(AnySeq(len(read.address)))

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
        exponent = self._exponent(m, note_rams[0], slot, version, lane)

        here = (incoming.delivery.slot == slot) & (incoming.version == version) & merges
        block, words = Ghost("block", p.offset_bits), Ghost("words", p.offset_bits)
        # Words are written this many cycles after they are asked for, and blocks.
        to_words, to_block = (1 if p.header_beats == 1 else 2), BLOCK_DELAY + p.arrival_waits
        first_words = 1 if p.header_beats == 1 else 2
        first_block = first_words + p.header_beats
        lanes_before = rank(incoming.present, lane)
        blocks_before = lanes_before * block_beats_of(p, incoming.partial)
        place = blocks_before + place_in_block(beat, incoming.partial)
        upper_plane = Mux(incoming.partial, p.block_beats, 0)
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
        for ghost, hit, fresh, known, offset, reads, address, at, write, held, times, becomes in (
            (
                block,
                here & incoming.present.bit_select(lane, 1),
                incoming.fresh.bit_select(lane, 1),
                _known(incoming),
                incoming.start + p.header_beats + blocks_before + upper_plane + beat,
                parts["with_blocks"] & parts["merges"],
                parts["block_address"],
                block_at,
                merge.write_block,
                self._slot_word(block_content),
                (place, first_block, to_block),
                merged_block,
            ),
            (
                words,
                here,
                incoming.opening,
                Const(0),
                incoming.start + word_beat,
                parts["with_words"],
                asked_words,
                words_at,
                merge.write_words,
                self._word(words_content),
                (word_beat, first_words, to_words),
                _merged_words,
            ),
        ):
            before, first, late = times
            writes = write.enable & (write.address == at)
            reading = reads & (address == at)
            taking = Signal(Merged, name=f"{ghost.now.name}_taking")
            m.d.comb += [
                taking.eq(ghost.given),
                taking.exponent.eq(exponent),
                ghost.next.eq(Mux(reading, becomes(ghost.now, taking), ghost.now)),
            ]
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
                    ghost.was.eq(taking),
                ]
            with m.If(starts & hit):
                m.d.sync += [
                    ghost.waiting.eq(1),
                    ghost.given.arriving.eq(AnySeq(32)),
                    ghost.given.lower.eq(AnySeq(32)),
                    ghost.given.known.eq(known),
                    ghost.given.fresh.eq(fresh),
                    ghost.offset.eq(offset),
                    ghost.lower_offset.eq(offset - p.block_beats),
                    ghost.age.eq(1),
                    ghost.place.eq(before),
                ]
            m.d.comb += [
                # What is written in this very cycle is there when the slot is read.
                Assert(~reading | (ghost.waiting & (~ghost.flying | writes)), "read in turn"),
                Assert(~writes | ghost.flying, "written after it is read"),
                Assert(~ghost.flying | (ghost.since < late), "written soon after it is read"),
                Assert(~writes | (ghost.since == late - 1), "written when it is due"),
                Assert(~reading | (ghost.age == first + ghost.place), "read when it is due"),
                Assert(held == Mux(ghost.flying, ghost.before, ghost.now), "content"),
                Assert(~ghost.flying | (ghost.now == becomes(ghost.before, ghost.was)), "ghost"),
            ]

        # The receive buffer has the operation's words and blocks at their places.
        block_here, lower_here, words_here = Signal(), Signal(), Signal()
        m.d.sync += [
            block_here.eq(parts["with_blocks"] & (asked == block.offset)),
            lower_here.eq(parts["with_blocks"] & (asked == block.lower_offset)),
            words_here.eq(parts["with_words"] & (asked == words.offset)),
        ]
        arrives = Signal(p.checked_bits)
        m.d.comb += [
            arrives.eq(AnySeq(p.checked_bits)),
            merge.receive.data.eq(arrives),
        ]
        with m.If(block_here):
            m.d.comb += self._word(merge.receive.data).eq(block.was.arriving)
        with m.Elif(words_here):
            m.d.comb += self._word(merge.receive.data).eq(words.was.arriving)
        with m.Elif(lower_here & block.waiting):
            m.d.comb += self._word(merge.receive.data).eq(block.given.lower)

        age = Signal(AGE_BITS)
        m.d.sync += age.eq(Mux(starts, 1, age + 1))
        self._tie(m, parts, block, words, slot, version, lane, beat, word_beat, phase, age)
        self._sent_lanes(m, parts, merge)
        self._deliveries(m, parts, merge, incoming, starts, age)
        ready = ~block.waiting & ~block.flying
        m.d.comb += Assert(~merge.idle | ready, "idle when all blocks are written")
        flying_late = block.flying & (block.since == to_block - 1)
        added = Signal()
        adds = flying_late & ~block.was.fresh & (block.was.arriving != 0)
        with m.If(adds):
            m.d.sync += added.eq(1)
        m.d.comb += [
            Cover(added & adds & (block.now != 0), "a block is added to twice"),
            Cover(adds & (block.was.lower != 0) & _is_partial(block.was), "a partial sum is added"),
        ]
        return m

    def _exponent(
        self, m: Module, ram: WatchedMemory, slot: Value, version: Value, lane: Value
    ) -> Value:
        """Return E of the watched block, by the words of its slot's other version."""
        within = ceil_log2(self._parameters.words_per_beat)
        beat = Cat(lane, Const(0, self._parameters.words_beat_bits))[within:]
        words_beat = beat[: self._parameters.words_beat_bits]
        m.d.comb += ram.watched.eq(Cat(words_beat, ~version, slot))
        return ram.content.word_select(lane[:within], EXPONENT_BITS)[: EXPONENT_BITS - 1]

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
        walk = parts["walk"]
        offset = parts["offset"]
        beat_of_words = parts["word_beat"]
        lowest, done = Signal(len(remaining)), Signal(5)
        tie_walk(m, parts, "walk")
        block_beats = block_beats_of(p, operation.partial)
        # The step within a block, and the place in the receive buffer that it is for.
        step = Cat(walk.beat, walk.second)
        in_planes = Cat(step[0], step[2:], step[1])
        before_blocks = Signal()
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
                Assert(step == 0),
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
        begins = (1 if p.header_beats == 1 else 2) + p.header_beats
        with m.If(~state("TAKE")):
            m.d.comb += Assert(parts["walk.short"] == ~operation.partial)
        with m.If(state("BLOCKS")):
            m.d.comb += [
                Assert(phase == walk.beat[0], "blocks at their phase"),
                Assert(remaining != 0),
                # Those that are done are the lowest.
                Assert((operation.present ^ remaining) < lowest),
                Assert((operation.present & remaining) == remaining),
                Assert(
                    offset
                    == (
                        operation.start
                        + p.header_beats
                        + done * block_beats
                        + Mux(operation.partial, in_planes, step)
                    )[: len(offset)]
                ),
                Assert(operation.kind == OperationKind.MERGE),
                Assert(age == begins + done * block_beats + step),
            ]
        here = (operation.delivery.slot == slot) & (operation.version == version)
        blocks_before = rank(operation.present, lane) * block_beats
        lower = operation.start + p.header_beats + blocks_before + beat
        expected = (lower + Mux(operation.partial, p.block_beats, 0))[: len(offset)]
        own_step = place_in_block(beat, operation.partial)
        to_come = (
            here
            & remaining.bit_select(lane, 1)
            & (before_blocks | (state("BLOCKS") & ((walk.lane != lane) | (step <= own_step))))
        )
        m.d.comb += Assert(block.waiting == to_come, "the block is to come")
        with m.If(to_come):
            m.d.comb += [
                Assert(block.offset == expected),
                Assert(~operation.partial | (block.lower_offset == lower[: len(offset)])),
                Assert(block.age == age),
                Assert(block.place == blocks_before + own_step),
                Assert(block.given.fresh == operation.fresh.bit_select(lane, 1)),
                Assert(block.given.known == _known(operation)),
            ]
        words_to_come = here & before_blocks & (beat_of_words <= word_beat)
        m.d.comb += Assert(words.waiting == words_to_come, "words are to come")
        with m.If(words_to_come):
            m.d.comb += [
                Assert(words.offset == (operation.start + word_beat)[: len(offset)]),
                Assert(words.age == age),
                Assert(words.place == word_beat),
                Assert(words.given.fresh == operation.opening),
            ]

    def _sent_lanes(self, m: Module, parts: Inside, merge: Merge) -> None:
        """Guarantee of deliveries what was required of their operations."""
        p = self._parameters
        seams.DELIVERY.guarantee(m, merge.o, merge.phase, lanes=p.lanes)
        operation = data.View(SlotOperation(p), parts["operation"])
        sends = ~parts.state("TAKE") & (operation.kind != OperationKind.RELEASE)
        m.d.comb += [
            Assert(~parts["begun"] | merge.phase),
            Assert(~sends | ((operation.delivery.header.present >> p.lanes) == 0)),
        ]

    def _deliveries(
        self,
        m: Module,
        parts: Inside,
        merge: Merge,
        incoming: data.View,
        starts: Value,
        age: Value,
    ) -> None:
        """Assert that a delivery leaves when it is due: `age` cycles after its operation's start.

        That is at once, on a narrow bus in the middle of the first block, and behind partial sums
        at the end.
        """
        p = self._parameters
        taken, due_at, due = Signal.like(incoming), Signal(AGE_BITS), Signal()
        begins = (1 if p.header_beats == 1 else 2) + p.header_beats
        ends = begins - 1 + sum(taken.present[: p.lanes]) * block_beats_of(p, taken.partial)
        halfway = begins - 1 + p.block_beats // 2 if p.header_beats > 1 else 1
        with m.If(starts):
            m.d.sync += taken.eq(incoming)
        merges = taken.kind == OperationKind.MERGE
        m.d.comb += [
            due_at.eq(
                Mux(
                    merges,
                    Mux(taken.partial, ends, Mux(taken.present[: p.lanes].any(), halfway, 1)),
                    1,
                )
            ),
            due.eq(
                ~parts.state("TAKE")
                & (age == due_at)
                & Mux(merges, taken.complete, taken.kind != OperationKind.RELEASE)
            ),
            Assert(merge.o.valid == due, "deliveries come when they are due"),
            Assert(
                parts.state("TAKE") | (data.View(SlotOperation(p), parts["operation"]) == taken)
            ),
            Assert(~parts["begun"] | (age == 1)),
            Assert(~parts.state("PASS") | parts["begun"]),
            Cover(due & ~taken.partial, "a result is delivered"),
            Cover(due & merges & taken.partial, "one of partial sums is"),
        ]
        if p.header_beats > 1:
            waits = merges & taken.present[: p.lanes].any() & (age > 1) & (age <= halfway)
            m.d.comb += Assert(parts["waits"] == (~parts.state("TAKE") & waits))
        with m.If(due):
            m.d.comb += [
                Assert(merge.o.payload.as_value() == taken.delivery.as_value()),
                Assert(merge.o_replay == (taken.kind == OperationKind.REPLAY)),
            ]


def _is_partial(given: data.View) -> Value:
    return data.View(Operation, Cat(given.known, Const(0, 1))).partial
