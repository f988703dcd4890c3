"""Merge stage: carries out the admit stage's decisions on the slot memory.

::

    cycle     t        t+1
    words     address  minimum,
                       write back

Words come with their residues, and leave with new ones. `MergeBlocks` merges blocks, which arrive
from the receive buffer like words, beat by beat behind them.

With `ram_output_register` the receive buffer answers a cycle later. It is addressed a cycle earlier
instead, and so are words of one beat: in the cycle in which the operation is taken, at phase 0.

Operations are carried out in order. A delivery leaves when its operation begins: what it stands for
is written while its headers are made and sent. (On a narrow bus it leaves in the middle of the
first block, whose note must be there when the block is sent. Behind partial sums, with which a
block takes twice as long as transmit takes to send its result, it leaves when the operation ends.)
Merge never pauses within an operation, and the transmit stage, which begins later, walks through
the same lanes and more in the same order, so it never catches up.
Between the cycle in which `write_block` or `write_words` writes a beat and the one in which
transmit's `read_block` or `read_words` addresses it lie `READ_BEHIND_WRITE` cycles at least.

Proved: `tests/formal/merge_memory.py`. Tested: `tests/sim/test_engine_numbers.py`,
`tests/hdl/test_latency.py`.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.engine.block_notes import merge_note_ports
from afflux_hdl.engine.lane_walk import LaneWalk
from afflux_hdl.engine.layouts import Delivery, OperationKind, SlotOperation
from afflux_hdl.engine.merge_blocks import MergeBlocks, walk_planes
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.lib.memory_ports import ReadPort, WritePort
from afflux_hdl.lib.residue import RESIDUE_BITS, fits, less_one

__all__ = ["Merge"]

READ_BEHIND_WRITE = 6
"""Least cycles from the write of a result's last contribution to transmit's read of it, beat by
beat, at 512 bits. They are the same for every block; on narrower buses there are more.

An operation that is taken in cycle t writes its words in t + 2 and beat n of its blocks in
t + 7 + n. Transmit takes the order of its result in t + 10 at the earliest, addresses the words in
t + 12, and beat n or a later one of the result's blocks is addressed not before t + 13 + n. With
`ram_output_register` blocks are written a cycle later, so there it is one cycle less; words are
addressed in t + 11: of words it is two cycles more. A block's note is written a cycle after its
last beat: of notes it is four cycles less."""


class Merge(wiring.Component):
    """Merges words and blocks into slots.

    Latency: 1 cycle from taking an operation to its delivery on `o`; on a bus with h > 1 beats of
    headers, if there are blocks of b beats, h + b/2 + 1 cycles; behind partial sums as many as the
    operation takes. Throughput: at 512 bits an operation with k blocks takes 2 + 4k cycles, or
    2 + 8k of partial sums, as many as its frame took to arrive; on narrower buses fewer. No
    back-pressure: `o` is taken at once.

    No bypass is needed. Words of a slot are read again after 2 cycles at the earliest, and are
    written 1 cycle after they are read (on narrower buses 4 and 2 cycles). A block is read again
    after 6 cycles at the earliest, by the second of two operations of one block each, and is
    written after 3 cycles. With `ram_output_register` blocks are written after 4; words of one beat
    after 2, in the very cycle in which they may be read again, so these come by a bypass.

    Members:
        phase: Alternates from cycle to cycle; operations start when it is 0.
        i: Operations.
        receive: Reads the receive buffer.
        release: Offset up to which the receive buffer is no longer needed.
        read_block, read_words, write_block, write_words: Slot memory.
        read_exponents, read_loss, write_note: Block notes.
        o: Deliveries, in order, when `phase` is 1.
        o_replay: With `o`: the delivery is a replay.
        overflows: Elements of this cycle's beat whose SUM left the range of int32.
        idle: Nothing is in flight.
    """

    def __init__(self, parameters: Parameters) -> None:
        p = parameters
        self._parameters = p
        block = (p.block_address_bits, p.slot_beat_bits)
        words = (p.words_address_bits, p.checked_bits)
        super().__init__(
            {
                "phase": In(1),
                "i": In(stream.Signature(SlotOperation(p))),
                "receive": Out(ReadPort(p.offset_bits, p.checked_bits)),
                "release": Out(p.offset_bits),
                "read_block": Out(ReadPort(*block)),
                "read_words": Out(ReadPort(*words)),
                "write_block": Out(WritePort(*block)),
                "write_words": Out(WritePort(*words)),
                **merge_note_ports(p),
                "o": Out(stream.Signature(Delivery(p), always_ready=True)),
                "o_replay": Out(1),
                "overflows": Out(range(p.words_per_beat + 1)),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters

        # Sequencer: take an operation at phase 0; then its words; then its blocks.
        operation = Signal(SlotOperation(p))
        offset = Signal(operation.start.shape())
        word_beat = Signal(range(max(2, p.header_beats)))
        m.submodules.walk = walk = LaneWalk(p)
        with_words, with_blocks, taking = Signal(), Signal(), Signal()
        begun, finishing = Signal(), Signal()
        block_address = Signal(p.block_address_bits)
        walks = walk_planes(m, p, walk, operation.partial & with_blocks)

        with m.FSM() as fsm:
            with m.State("TAKE"):
                with m.If(taking):
                    with m.If(self.i.payload.kind == OperationKind.MERGE):
                        if p.header_beats == 1:
                            m.next = "WORDS"
                        else:
                            m.next = "ALIGN"
                    with m.Else():
                        m.next = "PASS"
            with m.State("PASS"):
                m.d.comb += finishing.eq(1)
                m.next = "TAKE"
            with m.State("ALIGN"):
                m.next = "WORDS"
            with m.State("WORDS"):
                m.d.comb += with_words.eq(1)
                m.d.sync += word_beat.eq(word_beat + 1)
                with m.If(word_beat == p.header_beats - 1):
                    m.d.sync += word_beat.eq(0)
                    with m.If(walk.any):
                        m.next = "BLOCKS"
                    with m.Else():
                        m.d.comb += finishing.eq(1)
                        m.next = "TAKE"
            with m.State("BLOCKS"):
                m.d.comb += [with_blocks.eq(1), walk.step.eq(1)]
                with m.If(walk.last):
                    m.d.comb += finishing.eq(1)
                    m.next = "TAKE"
        # An operation is taken in state TAKE at phase 0; both are known a cycle ahead.
        may_take = Signal()
        m.d.sync += may_take.eq(self.phase & (fsm.ongoing("TAKE") | finishing))
        m.d.sync += begun.eq(taking)
        m.d.comb += [
            taking.eq(self.i.valid & may_take),
            self.i.ready.eq(taking),
            walk.load.eq(taking),
            walk.present.eq(self.i.payload.present),
            walk.long.eq(self.i.payload.partial),
            self.receive.address.eq(offset),
            self.read_words.address.eq(Cat(word_beat, operation.version, operation.delivery.slot))
            if p.header_beats > 1
            else self.read_words.address.eq(Cat(operation.version, operation.delivery.slot)),
            block_address.eq(
                Cat(walks.beat, walk.lane, operation.version, operation.delivery.slot)
            ),
        ]
        with m.If(taking):
            m.d.sync += [operation.eq(self.i.payload), offset.eq(self.i.payload.start)]
        with m.Elif(with_words | with_blocks):
            m.d.sync += offset.eq(offset + walks.advance)
        if p.ram_output_register:
            # The receive buffer answers a cycle later, so it is addressed a cycle earlier: by what
            # `offset` is about to be. Nothing is read for what is not taken.
            following = offset + Mux(with_words | with_blocks, walks.advance, 0)
            m.d.comb += self.receive.address.eq(Mux(may_take, self.i.payload.start, following))
        # Control's own operations occupy nothing of the receive buffer.
        with m.If(finishing & (operation.kind != OperationKind.ORDER)):
            m.d.sync += self.release.eq(operation.end)

        # One cycle later the data are here. Words are merged at once. On narrow buses, where a word
        # is read again after 4 cycles at the earliest, they pass a register first.
        held_words, arriving_words = self.read_words.data, self.receive.data
        words_read, words_address, opening = with_words, self.read_words.address, operation.opening
        if p.header_beats > 1:
            held_words, arriving_words = Signal(p.checked_bits), Signal(p.checked_bits)
            words_read, opening = Signal(), Signal()
            words_address = Signal.like(self.read_words.address)
            m.d.sync += [
                held_words.eq(self.read_words.data),
                arriving_words.eq(self.receive.data),
                words_read.eq(with_words),
                words_address.eq(self.read_words.address),
                opening.eq(operation.opening),
            ]
        if p.ram_output_register and p.header_beats == 1:
            # They pass one here too, so they are addressed by the operation that is taken. In that
            # very cycle the frame before may write them: then its values override these.
            held_words, written = Signal(p.checked_bits), Signal(p.checked_bits)
            self.overtaken = overtaken = Signal()
            words_address = Cat(operation.version, operation.delivery.slot)
            m.d.comb += self.read_words.address.eq(
                Cat(self.i.payload.version, self.i.payload.delivery.slot)
            )
            m.d.sync += [
                overtaken.eq(
                    self.write_words.enable & (self.write_words.address == self.read_words.address)
                ),
                written.eq(self.write_words.data),
                held_words.eq(Mux(overtaken, written, self.read_words.data)),
            ]
        words1, blocks1 = Signal(), Signal()
        words_address1 = Signal.like(self.read_words.address)
        block_address1 = Signal.like(self.read_block.address)
        opening1, fresh1, opcode1 = Signal(), Signal(), Signal(2)
        m.d.sync += [
            words1.eq(words_read),
            blocks1.eq(with_blocks & walks.merges),
            words_address1.eq(words_address),
            block_address1.eq(block_address),
            opening1.eq(opening),
            fresh1.eq(operation.fresh.bit_select(walk.lane, 1)),
            opcode1.eq(operation.opcode),
        ]
        m.d.comb += [
            self.write_words.enable.eq(words1),
            self.write_words.address.eq(words_address1),
        ]
        words_at, residues_at = (
            [slice(first + width * n, first + width * (n + 1)) for n in range(p.words_per_beat)]
            for first, width in ((0, 32), (p.bus_bits, RESIDUE_BITS))
        )
        for word, check in zip(words_at, residues_at, strict=True):
            held, arriving = held_words[word], arriving_words[word]
            held_check, arriving_check = held_words[check], arriving_words[check]
            # By the opposite comparison, as in the lane ALU, and spoiled as there.
            keeps = Signal(name=f"keeps_{word.start // 32}")
            loser_fits = Mux(keeps, fits(m, arriving, arriving_check), fits(m, held, held_check))
            chosen = Mux(keeps, held_check, arriving_check)
            m.d.comb += [
                keeps.eq(~opening1 & (held < arriving)),
                self.write_words.data[word].eq(Mux(opening1 | (arriving < held), arriving, held)),
                self.write_words.data[check].eq(less_one(m, chosen, ~opening1 & ~loser_fits)),
            ]

        self.fresh1 = fresh1
        # For the slot memory's output register, or for the exponent.
        arriving1, under_way = self.receive.data, blocks1
        if p.arrival_waits:
            waiting = (blocks1, block_address1, fresh1, opcode1, arriving1)
            found = tuple(Signal.like(each, name=f"found_{n}") for n, each in enumerate(waiting))
            m.d.sync += [later.eq(now) for later, now in zip(found, waiting, strict=True)]
            under_way = blocks1 | found[0]
            blocks1, block_address1, fresh1, opcode1, arriving1 = found

        m.submodules.blocks = self.blocks = blocks = MergeBlocks(p)
        header = operation.delivery.header
        m.d.comb += [
            blocks.address.eq(block_address),
            blocks.opcode.eq(header.opcode),
            blocks.dtype.eq(header.dtype),
            blocks.partial.eq(operation.partial),
            blocks.rounded.eq(operation.delivery.rounded),
            blocks.arrived.eq(blocks1),
            blocks.arrived_address.eq(block_address1),
            blocks.fresh.eq(fresh1),
            blocks.low.eq(opcode1),
            blocks.words.eq(arriving1),
            self.overflows.eq(blocks.overflows),
        ]
        for name in ("read_block", "write_block", *merge_note_ports(p)):
            wiring.connect(m, getattr(blocks, name), wiring.flipped(getattr(self, name)))

        leaves = begun
        if p.header_beats > 1:
            leaves = self._wait_for_note(m, begun, operation, walk)
        leaves = Mux(operation.partial, finishing, leaves)
        m.d.comb += [
            self.o.valid.eq(
                leaves
                & (operation.complete | (operation.kind != OperationKind.MERGE))
                & (operation.kind != OperationKind.RELEASE)
            ),
            self.o.payload.eq(operation.delivery),
            self.o_replay.eq(operation.kind == OperationKind.REPLAY),
            self.idle.eq(fsm.ongoing("TAKE") & ~self.i.valid & ~(under_way | blocks.busy)),
        ]
        # For proofs and planted bugs.
        self.operation, self.offset, self.word_beat, self.walk = operation, offset, word_beat, walk
        self.with_words, self.with_blocks, self.fsm = with_words, with_blocks, fsm
        self.begun, self.finishing, self.may_take = begun, finishing, may_take
        self.words1, self.words_address1, self.opening1 = words1, words_address1, opening1
        self.words_address, self.held_words = words_address, held_words
        self.under_way = under_way
        self.block_address, self.merges = block_address, walks.merges
        return m

    def _wait_for_note(
        self, m: Module, begun: Value, operation: data.View, walk: LaneWalk
    ) -> Value:
        """Return when a delivery leaves on a narrow bus.

        A block of b beats is noted b + 6 cycles after its first beat is addressed. Transmit, which
        takes the order 9 cycles after the delivery at the earliest, reads that note behind 2h beats
        of headers and words. With h = b / 4 that is late enough from the middle of the block on.
        """
        has_blocks, halfway = Signal(), Signal()
        self.waits = waits = Signal()
        m.d.comb += [
            has_blocks.eq(walk.any & (operation.kind == OperationKind.MERGE)),
            halfway.eq(waits & walk.step & (walk.beat == self._parameters.block_beats // 2 - 1)),
        ]
        with m.If(begun):
            m.d.sync += waits.eq(has_blocks)
        with m.Elif(halfway):
            m.d.sync += waits.eq(0)
        return halfway | (begun & ~has_blocks)
