"""Proof: transmit never reads a beat of a result before merge has written it.

A result is ordered while its last contribution is merged. The merge stage and the transmit stage as
they are; operations at any times, and a MAC that stops and goes as it likes. One operation that
completes a round is chosen, and one beat of what it merges, of a block or of the look-ahead words,
or the note of a block. Orders of its result, one for each worker, come at any times, but not sooner
than `dispatch.py` shows that they do. Each reads the beat later than merge has written it, by at
least `READ_BEHIND_WRITE` cycles, or as many less as is said there.

Merge never pauses within an operation, so the beat that it works on is known by the cycles since
the operation began. Transmit sends a header first, walks through the same lanes and more, and may
pause: it is never ahead of a walk that began when its order could come first.
"""

from amaranth.asserts import AnyConst
from amaranth.hdl import (
    Assert,
    Cat,
    Const,
    Cover,
    Elaboratable,
    Module,
    Mux,
    Signal,
    Value,
)
from amaranth.lib import data

from afflux_hdl.engine.layouts import OperationKind, SlotOperation
from afflux_hdl.engine.merge import READ_BEHIND_WRITE, Merge
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.replicate import FrameOrder
from afflux_hdl.engine.transmit import Transmit
from tests.formal import seams
from tests.formal.contracts import choose
from tests.formal.dispatch import ORDER_AGE, Chosen
from tests.formal.inside import Inside
from tests.formal.merge_memory import BLOCK_DELAY
from tests.formal.stage_streams import drive
from tests.formal.walks import beats_merged, beats_sent, block_beats_of, place_in_block, rank
from tests.formal.watched import choice, watching

__all__ = ["DistanceHarness"]


class DistanceHarness(Elaboratable):
    """See above.

    Args:
        order_age: Cycles from a delivery's leaving merge to its first order, at least.
        sizes: Parameters of the engine that are not the default.
    """

    def __init__(self, order_age: int = ORDER_AGE, **sizes: int) -> None:
        self._parameters = Parameters(**sizes)
        self._order_age = order_age

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        merge, transmit = Merge(p), Transmit(p)
        merging = Inside(merge, platform)
        with watching("amaranth.lib.fifo"):
            sending = Inside(transmit, platform)
        m.submodules.merge, m.submodules.transmit = merging.fragment, sending.fragment
        drive(m, merge)
        drive(m, transmit)
        seams.PHASE.require(m, merge.phase, transmit.phase)
        seams.OPERATION.require(m, merge.i, lanes=p.lanes)
        seams.CUT.require(m, transmit.cut)
        seams.ORDER.require(m, transmit.i, lanes=p.lanes)

        # The chosen operation completes a round; its delivery bears the tag. That leaves at once;
        # on a narrow bus in the middle of the first block; behind partial sums at the end.
        longest = 2 * p.frame_beats_max + 4 * p.header_beats + 64
        longest = (1 << longest.bit_length()) - 1
        chosen = Chosen(m, p, merge.o, longest)
        age, elapsed = chosen.age, Signal(range(longest + 1))
        operation = data.View(SlotOperation(p), merging["operation"])
        completes = (operation.kind == OperationKind.MERGE) & operation.complete
        completes = completes & seams.tag(operation.delivery.header)
        starts = merging["begun"] & completes
        known = Signal(SlotOperation(p))
        of = data.View(SlotOperation(p), Mux(starts, operation.as_value(), known.as_value()))
        began = Signal()
        with m.If(starts):
            m.d.sync += [known.eq(operation), began.eq(1)]
        with m.If((starts | began) & (elapsed != longest)):
            m.d.sync += elapsed.eq(elapsed + 1)
        choose(m, ~starts | ~began, "one operation that completes a round")
        choose(m, ~chosen.now | ((age == 0) & completes), "its delivery")
        seams.ORDER_AGE.require(m, transmit.i, age, chosen.delivery, least=self._order_age)

        # The beat, by its place in what the operation merges; of a note its block's last one.
        of_words = AnyConst(1)
        of_note = AnyConst(1) & ~of_words
        lane, beat = choice(p.lanes), AnyConst(p.beat_bits) | of_note.replicate(p.beat_bits)
        word: Value = AnyConst(max(1, p.words_beat_bits))[: p.words_beat_bits]
        version = of.delivery.header.round[0]
        note_at = Cat(lane, version, of.delivery.slot)
        block_at = Cat(beat, note_at)
        words_at = Cat(word, version, of.delivery.slot)
        has_it = of_words | of.present.bit_select(lane, 1)
        writes = Mux(
            of_words,
            merge.write_words.enable & (merge.write_words.address == words_at),
            Mux(
                of_note,
                merge.write_note.enable & (merge.write_note.address == note_at),
                merge.write_block.enable & (merge.write_block.address == block_at),
            ),
        )
        order = data.View(FrameOrder(p), sending["order"])
        tagged = sending["active"] & seams.tag(order.header) & ~order.reply
        # Words of one beat are addressed with the header if the memories have output registers.
        early = p.ram_output_register and p.header_beats == 1
        reads = tagged & Mux(
            of_words,
            sending["in_header" if early else "in_words"]
            & (transmit.read_words.address == words_at),
            sending["in_blocks"]
            & Mux(
                of_note,
                transmit.read_note.address == note_at,
                transmit.read_block.address == block_at,
            ),
        )
        # Merge asks for it in one cycle, and writes it some cycles later.
        ongoing, addressed, written = Signal(), Signal(), Signal()
        own = starts | ongoing
        m.d.sync += ongoing.eq(own & ~merging["finishing"])
        words_address = merge.read_words.address
        if early:
            words_address = Signal.like(merge.read_words.address)
            m.d.sync += words_address.eq(merge.read_words.address)
        addresses = Signal()
        m.d.comb += addresses.eq(
            own
            & has_it
            & Mux(
                of_words,
                merging["with_words"] & (words_address == words_at),
                merging["with_blocks"] & merging["merges"] & (merging["block_address"] == block_at),
            )
        )
        words_delay = 1 if p.header_beats == 1 else 2
        block_delay = BLOCK_DELAY + p.arrival_waits
        delays = [addresses]
        for n in range(block_delay + 1):
            delays.append(Signal(name=f"addressed_{n}"))
            m.d.sync += delays[-1].eq(delays[-2])
        now_written = Mux(
            of_words,
            delays[words_delay],
            Mux(of_note, delays[block_delay + 1], delays[block_delay]),
        )
        # As is said there: of words more, and of notes less.
        of_blocks = READ_BEHIND_WRITE - p.ram_output_register
        least = Mux(of_words, READ_BEHIND_WRITE + 2, Mux(of_note, of_blocks - 4, of_blocks))
        since = Signal(range(READ_BEHIND_WRITE + 4))
        with m.If(addresses):
            m.d.sync += addressed.eq(1)
        with m.If(now_written):
            m.d.sync += written.eq(1)
        with m.If(written & (since <= least)):
            m.d.sync += since.eq(since + 1)
        m.d.comb += [
            Assert(~now_written | writes, "written as many cycles after its address"),
            Assert(~(reads & has_it) | (written & (since + 1 >= least)), "read behind its write"),
            Cover(reads & has_it & ~of_words & ~of_note & (since + 1 == least)),
            Cover(reads & has_it & of_note & (since + 1 == least)),
            Cover(reads & of_words),
        ]

        # Merge, by the cycles since the operation began.
        begins = int(p.header_beats > 1)
        at = beats_merged(m, merging, p)
        expected, ends = (
            Signal(range(p.frame_beats_max + 2), name=name) for name in ("due", "end")
        )
        block_beats = block_beats_of(p, of.partial)
        before = rank(of.present, lane) * block_beats + place_in_block(beat, of.partial)
        m.d.comb += [
            expected.eq(begins + Mux(of_words, word, p.header_beats + before)),
            ends.eq(begins + p.header_beats - 1 + sum(of.present) * block_beats),
        ]
        halfway = begins + p.header_beats - 1 + p.block_beats // 2 if p.header_beats > 1 else 0
        leaves = Mux(of.partial, ends, Mux(of.present.any(), halfway, 0))
        started = own | began
        delay = Mux(of_words, words_delay, Mux(of_note, block_delay + 1, block_delay))
        aligning = merging.state("ALIGN") if begins else Const(0)
        with m.If(own):
            m.d.comb += [
                Assert(elapsed == Mux(aligning, 0, begins + at), "merge never pauses"),
                Assert(merging.state("WORDS") | merging.state("BLOCKS") | aligning),
                Assert(chosen.now == (elapsed == leaves), "its delivery leaves when it is due"),
                Assert(operation.as_value() == of.as_value()),
                Assert(completes),
            ]
        with m.Else():
            # No other one bears the tag.
            m.d.comb += Assert(merging.state("TAKE") | merging["begun"] | ~completes)
        if p.header_beats > 1:
            waits = of.present.any() & ~starts & (elapsed <= halfway)
            waiting = operation.present.any() & ~merging["begun"] & (at < halfway)
            in_words = merging.state("WORDS") & waiting
            in_blocks = merging.state("BLOCKS") & waiting
            m.d.comb += [
                Assert(~own | (merging["waits"] == waits)),
                Assert(~merging["waits"] | in_words | in_blocks),
            ]
        m.d.comb += [
            Assert(~starts | (elapsed == 0)),
            Assert(~started | (elapsed == longest) | (merge.phase != elapsed[0])),
            Assert(began | (elapsed == 0)),
            Assert(began | ~ongoing),
            Assert(~began | ongoing | (elapsed > ends)),
            Assert((age != 0) == (began & (elapsed > leaves))),
            Assert((age == 0) | (elapsed == longest) | (elapsed == age + leaves)),
            Assert((age == 0) | (known.delivery == chosen.delivery)),
            Assert((of.present >> p.lanes) == 0),
            Assert(~began | (known.version == known.delivery.header.round[0])),
        ]
        with m.If(started & has_it):
            m.d.comb += [
                Assert(own | (elapsed > expected)),
                Assert(addressed == (elapsed > expected)),
                Assert(written == (elapsed > expected + delay)),
            ]
        with m.Else():
            m.d.comb += Assert(~addressed & ~written)
        m.d.comb += Assert((since <= least + 1) & (written | (since == 0)))
        with m.If(written):
            m.d.comb += Assert(
                (elapsed == expected + delay + 1 + since)
                | ((since == least + 1) & (elapsed > expected + delay + 1 + since))
            )
        # Transmit, by the cycles since its order could come.
        sent = beats_sent(m, sending, p)
        counted = (age != 0) & (age != longest)
        m.d.comb += [
            Assert(~counted | (merge.phase != age[0]), "in step with the phase"),
            Assert(~began | ((known.present & ~known.delivery.header.present) == 0)),
        ]
        with m.If(tagged):
            m.d.comb += [
                Assert((age == longest) | (age >= self._order_age + 2 + sent)),
                Assert(order.slot == chosen.delivery.slot),
                Assert(order.header.round == chosen.delivery.header.round),
                Assert(order.header.present == chosen.delivery.header.present),
            ]
        return m
