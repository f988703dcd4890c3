"""Proof: transmit never reads a beat of a result before merge has written it.

A result is ordered when the merge of its last contribution begins. The merge stage and the transmit
stage as they are; operations at any times, and a MAC that stops and goes as it likes. One operation
that completes a round is chosen, and one beat of what it merges, of a block or of the look-ahead
words. Orders of its result, one for each worker, come at any times, but not sooner than
`dispatch.py` shows that they do. Each reads the beat later than merge has written it, by at least
`READ_BEHIND_WRITE` cycles.

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
    ValueLike,
)
from amaranth.lib import data

from afflux_hdl.engine.layouts import Delivery, OperationKind, SlotOperation
from afflux_hdl.engine.merge import READ_BEHIND_WRITE, Merge
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.replicate import FrameOrder
from afflux_hdl.engine.transmit import Transmit
from tests.formal import seams
from tests.formal.contracts import choose
from tests.formal.dispatch import ORDER_AGE, Chosen
from tests.formal.inside import Inside
from tests.formal.stage_streams import drive
from tests.formal.walks import beats_merged, beats_sent, rank
from tests.formal.watched import choice, watching

__all__ = ["DistanceHarness"]


BLOCK_DELAY = 3
"""Cycles from the address of a block's beat to its write; one more with an output register."""


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

        # The chosen operation completes a round; its delivery bears the tag.
        longest = p.frame_beats_max + 4 * p.header_beats + 64
        chosen = Chosen(m, p, merge.o, (1 << longest.bit_length()) - 1)
        age = chosen.age
        operation = data.View(SlotOperation(p), merging["operation"])
        present = Signal(len(operation.present))
        with m.If(chosen.now):
            m.d.sync += present.eq(operation.present)
        completes = (operation.kind == OperationKind.MERGE) & operation.complete
        choose(m, ~chosen.now | ((age == 0) & completes), "one operation that completes a round")
        seams.ORDER_AGE.require(m, transmit.i, age, chosen.delivery, least=self._order_age)

        # The beat, by its place in what the operation merges.
        of_words = AnyConst(1)
        lane, beat = choice(p.lanes), AnyConst(p.beat_bits)
        word: Value = AnyConst(max(1, p.words_beat_bits))[: p.words_beat_bits]
        # As it is in the cycle in which it is chosen, too.
        chosen_delivery = data.View(
            Delivery(p), Mux(chosen.now, merge.o.payload.as_value(), chosen.delivery.as_value())
        )
        version = chosen_delivery.header.round[0]
        block_at = Cat(beat, lane, version, chosen_delivery.slot)
        words_at = Cat(word, version, chosen_delivery.slot)
        lanes_of = Mux(chosen.now, operation.present, present)
        has_it = of_words | lanes_of.bit_select(lane, 1)
        writes = Mux(
            of_words,
            merge.write_words.enable & (merge.write_words.address == words_at),
            merge.write_block.enable & (merge.write_block.address == block_at),
        )
        order = data.View(FrameOrder(p), sending["order"])
        tagged = sending["active"] & seams.tag(order.header) & ~order.reply
        # Words of one beat are addressed with the header if the memories have output registers.
        early = p.ram_output_register and p.header_beats == 1
        reads = tagged & Mux(
            of_words,
            sending["in_header" if early else "in_words"]
            & (transmit.read_words.address == words_at),
            sending["in_blocks"] & (transmit.read_block.address == block_at),
        )
        # Merge addresses it in one cycle, and writes it some cycles later.
        ongoing, addressed, written = Signal(), Signal(), Signal()
        elapsed = Mux(chosen.now, 0, age)
        own = chosen.now | ongoing
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
                merging["with_blocks"] & (merge.read_block.address == block_at),
            )
        )
        words_delay = 1 if p.header_beats == 1 else 2
        block_delay = BLOCK_DELAY + p.ram_output_register
        delays = [addresses]
        for n in range(block_delay):
            delays.append(Signal(name=f"addressed_{n}"))
            m.d.sync += delays[-1].eq(delays[-2])
        now_written = Mux(of_words, delays[words_delay], delays[block_delay])
        least: ValueLike = READ_BEHIND_WRITE
        if p.ram_output_register:
            # As is said there: of blocks one less.
            least = Mux(of_words, READ_BEHIND_WRITE, READ_BEHIND_WRITE - 1)
        since = Signal(range(READ_BEHIND_WRITE + 2))
        with m.If(addresses):
            m.d.sync += addressed.eq(1)
        with m.If(now_written):
            m.d.sync += written.eq(1)
        with m.If(written & (since <= least)):
            m.d.sync += since.eq(since + 1)
        m.d.comb += [
            Assert(~now_written | writes, "written as many cycles after its address"),
            Assert(~(reads & has_it) | (written & (since + 1 >= least)), "read behind its write"),
            Cover(reads & has_it & ~of_words & (since + 1 == least)),
            Cover(reads & of_words),
        ]

        # Merge, by the cycles since the operation began.
        begins = int(p.header_beats > 1)
        at = beats_merged(m, merging, p)
        expected = Signal(range(p.frame_beats_max + 2))
        m.d.comb += expected.eq(
            begins
            + Mux(of_words, word, p.header_beats + rank(lanes_of, lane) * p.block_beats + beat)
        )
        started = own | (age != 0)
        delay = Mux(of_words, words_delay, block_delay)
        aligning = merging.state("ALIGN") if begins else Const(0)
        with m.If(own):
            m.d.comb += [
                Assert(elapsed == Mux(aligning, 0, begins + at), "merge never pauses"),
                Assert(merging.state("WORDS") | merging.state("BLOCKS") | aligning),
                Assert(operation.kind == OperationKind.MERGE),
            ]
        with m.If(ongoing):
            m.d.comb += [
                Assert(operation.present == present),
                Assert(operation.delivery == chosen.delivery),
                Assert(operation.version == version),
            ]
        with m.If(started & has_it):
            m.d.comb += [
                Assert(ongoing | chosen.now | (elapsed > expected)),
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
        known = (age != 0) & (age != ((1 << len(age)) - 1))
        m.d.comb += [
            Assert(~known | (merge.phase != age[0]), "in step with the phase"),
            Assert((present & ~chosen.delivery.header.present) == 0),
        ]
        with m.If(tagged):
            m.d.comb += [
                Assert((age == ((1 << len(age)) - 1)) | (age >= self._order_age + 2 + sent)),
                Assert(order.slot == chosen.delivery.slot),
                Assert(order.header.round == chosen.delivery.header.round),
                Assert(order.header.present == chosen.delivery.header.present),
            ]
        return m
