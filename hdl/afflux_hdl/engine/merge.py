"""Merge stage: carries out the admit stage's decisions on the slot memory.

::

    cycle     t        t+1       t+2      t+3
    blocks    address  data      ALU      write back
    words     address  minimum,
                       write back

Words and elements come with their residues, and leave with new ones.

With `ram_output_register` data come a cycle after what is drawn. Blocks wait for that, with what
they are merged with. The receive buffer is addressed a cycle earlier instead, and so are words of
one beat: in the cycle in which the operation is taken, at phase 0.

An engine that sums numbers aligns what arrives before it adds it, so the slot's beats are read two
cycles later, at the same phase, and written as much later::

    cycle     t        t+1       t+2      t+3      t+4      t+5
    arriving  address  aligned   …        …        added    write back
    slot                         address  data     added
    exponent  chosen   aligned by

Operations are carried out in order. A delivery leaves when its operation begins: what it stands for
is written while its headers are made and sent. Merge never pauses within an operation, and the
transmit stage, which begins later, walks through the same lanes and more in the same order, so it
never catches up. Between the cycle in which `write_block` or `write_words` writes a beat and the
one in which transmit's `read_block` or `read_words` addresses it lie `READ_BEHIND_WRITE` cycles
at least.

Proved: `tests/formal/merge_memory.py`. Tested: `tests/sim/test_engine_numbers.py`,
`tests/hdl/test_latency.py`.
"""

from typing import NamedTuple

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.contract import wire
from afflux_hdl.engine.block_notes import EXPONENT_BITS, note_port
from afflux_hdl.engine.lane_alu import LaneAlu
from afflux_hdl.engine.lane_walk import LaneWalk
from afflux_hdl.engine.layouts import Delivery, OperationKind, SlotOperation
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.slot_words import ALIGN_CYCLES, MergeWord, Operation, delayed
from afflux_hdl.lib.memory_ports import ReadPort, WritePort
from afflux_hdl.lib.residue import RESIDUE_BITS, fits, less_one
from afflux_hdl.numbers.formats import Fixed

__all__ = ["Merge"]

READ_BEHIND_WRITE = 8
"""Least cycles from the write of a result's last contribution to transmit's read of it, beat by
beat, at 512 bits. They are the same for every block; on narrower buses there are more.

An operation that is taken in cycle t writes its words in t + 2 and beat n of its blocks in
t + 5 + n. Transmit takes the order of its result in t + 10 at the earliest, addresses the words in
t + 12, and beat n or a later one of the result's blocks is addressed not before t + 13 + n. With
`ram_output_register` blocks are written a cycle later, so there it is one cycle less; words are
addressed in t + 11. In an engine that sums numbers it is two cycles less for blocks, whose notes
are written with their last beats."""


class Arrival(NamedTuple):
    """A beat of a block, as it has come out of the receive buffer.

    Attributes:
        blocks: There is one.
        address: That of its slot's beat.
        fresh: The slot holds nothing of its block yet.
        opcode: The frame's, its low bits.
        data: Its words, and behind them their residues.
    """

    blocks: Value
    address: Value
    fresh: Value
    opcode: Value
    data: Value


def number_ports(parameters: Parameters) -> dict[str, Out]:
    """Return the ports of an engine that sums numbers."""
    versions, exponents = parameters.words_address_bits, wire.LANES_MAX * EXPONENT_BITS
    blocks, note = note_port(parameters)
    return {
        "read_exponents": Out(ReadPort(versions, exponents)),
        "write_exponents": Out(WritePort(versions, exponents)),
        "read_lost": Out(ReadPort(blocks, 1)),
        "write_note": Out(WritePort(blocks, note)),
    }


class Merge(wiring.Component):
    """Merges words and blocks into slots.

    Latency: 1 cycle from taking an operation to its delivery on `o`. Throughput: at 512 bits an
    operation with k blocks takes 2 + 4k cycles, as many as its frame took to arrive; on narrower
    buses fewer. No back-pressure: `o` is taken at once.

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
        read_exponents, write_exponents, read_lost, write_note: If the engine sums numbers: block
            notes.
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
                **(number_ports(p) if p.numbers else {}),
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
        block_address = self.read_block.address
        if p.numbers:
            block_address = Signal(p.block_address_bits)

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
            self.receive.address.eq(offset),
            self.read_words.address.eq(Cat(word_beat, operation.version, operation.delivery.slot))
            if p.header_beats > 1
            else self.read_words.address.eq(Cat(operation.version, operation.delivery.slot)),
            block_address.eq(Cat(walk.beat, walk.lane, operation.version, operation.delivery.slot)),
        ]
        with m.If(taking):
            m.d.sync += [operation.eq(self.i.payload), offset.eq(self.i.payload.start)]
        with m.Elif(with_words | with_blocks):
            m.d.sync += offset.eq(offset + 1)
        if p.ram_output_register:
            # The receive buffer answers a cycle later, so it is addressed a cycle earlier: by what
            # `offset` is about to be. Nothing is read for what is not taken.
            following = offset + (with_words | with_blocks)
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
            blocks1.eq(with_blocks),
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
        # With its output register the slot memory answers a cycle later; all else waits for it.
        arriving1, under_way = self.receive.data, blocks1
        if p.ram_output_register:
            waiting = (blocks1, block_address1, fresh1, opcode1, arriving1)
            found = tuple(Signal.like(each, name=f"found_{n}") for n, each in enumerate(waiting))
            m.d.sync += [later.eq(now) for later, now in zip(found, waiting, strict=True)]
            under_way = blocks1 | found[0]
            blocks1, block_address1, fresh1, opcode1, arriving1 = found

        arrival = Arrival(blocks1, block_address1, fresh1, opcode1, arriving1)
        if p.numbers:
            m.d.comb += self.read_block.address.eq(delayed(m, block_address, ALIGN_CYCLES - 1))
            stages = self._merge_numbers(m, arrival, operation, walk.lane, words_at, residues_at)
            self._note_exponents(m, operation)
        else:
            stages = self._merge_integers(m, arrival, words_at, residues_at)
        busy = under_way
        for stage in stages:
            busy = busy | stage

        m.d.comb += [
            self.o.valid.eq(
                begun
                & (operation.complete | (operation.kind != OperationKind.MERGE))
                & (operation.kind != OperationKind.RELEASE)
            ),
            self.o.payload.eq(operation.delivery),
            self.o_replay.eq(operation.kind == OperationKind.REPLAY),
            self.idle.eq(fsm.ongoing("TAKE") & ~self.i.valid & ~busy),
        ]
        # For proofs and planted bugs.
        self.operation, self.offset, self.word_beat, self.walk = operation, offset, word_beat, walk
        self.with_words, self.with_blocks, self.fsm = with_words, with_blocks, fsm
        self.begun, self.finishing, self.may_take = begun, finishing, may_take
        self.words1, self.words_address1, self.opening1 = words1, words_address1, opening1
        self.words_address, self.held_words = words_address, held_words
        self.under_way, self.blocks1 = under_way, blocks1
        return m

    def _merge_integers(
        self, m: Module, arrival: Arrival, words_at: list[slice], residues_at: list[slice]
    ) -> list[Value]:
        """Merge what has arrived; return for each stage whether something is in it."""
        p = self._parameters
        # Blocks take two more cycles: a register behind the memories, and the ALU's own.
        held2, arriving2 = Signal(p.checked_bits), Signal(p.checked_bits)
        blocks2, blocks3 = Signal(), Signal()
        block_address2 = Signal.like(self.read_block.address)
        block_address3 = Signal.like(self.read_block.address)
        fresh2, opcode2 = Signal(), Signal(2)
        m.d.sync += [
            blocks2.eq(arrival.blocks),
            blocks3.eq(blocks2),
            block_address2.eq(arrival.address),
            block_address3.eq(block_address2),
            fresh2.eq(arrival.fresh),
            opcode2.eq(arrival.opcode),
        ]
        with m.If(arrival.blocks):
            m.d.sync += [held2.eq(self.read_block.data), arriving2.eq(arrival.data)]
        overflow3 = Signal(p.words_per_beat)
        self.alus = [LaneAlu() for _ in range(p.words_per_beat)]
        for n, (word, check) in enumerate(zip(words_at, residues_at, strict=True)):
            m.submodules[f"alu_{n}"] = alu = self.alus[n]
            m.d.comb += [
                alu.opcode.eq(opcode2),
                alu.fresh.eq(fresh2),
                alu.held.eq(held2[word]),
                alu.arriving.eq(arriving2[word]),
                alu.held_residue.eq(held2[check]),
                alu.arriving_residue.eq(arriving2[check]),
                self.write_block.data[word].eq(alu.merged),
                self.write_block.data[check].eq(alu.merged_residue),
                overflow3[n].eq(alu.overflow),
            ]
        m.d.comb += [
            self.write_block.enable.eq(blocks3),
            self.write_block.address.eq(block_address3),
        ]
        m.d.sync += self.overflows.eq(Mux(blocks3, sum(overflow3), 0))
        self.blocks2, self.blocks3 = blocks2, blocks3
        self.fresh2, self.arriving2 = fresh2, arriving2
        return [blocks2, blocks3]

    def _merge_numbers(
        self,
        m: Module,
        arrival: Arrival,
        operation: data.View,
        lane: Value,
        words_at: list[slice],
        residues_at: list[slice],
    ) -> list[Value]:
        """Do the same in an engine that sums numbers, and note what is lost."""
        p = self._parameters
        exponent, kind = Signal(EXPONENT_BITS), Signal(Operation)
        m.d.sync += [
            exponent.eq(self.read_exponents.data.word_select(lane, EXPONENT_BITS)),
            kind.opcode.eq(operation.delivery.header.opcode),
            kind.dtype.eq(operation.delivery.header.dtype),
        ]
        exponent = delayed(m, exponent, p.ram_output_register)
        found_kind = Signal(Operation)
        m.d.comb += [
            found_kind.eq(delayed(m, kind, p.ram_output_register)),
            found_kind.low.eq(arrival.opcode),
        ]
        blocks, fresh, address = [arrival.blocks], [arrival.fresh], [arrival.address]
        for stages in (blocks, fresh, address):
            for _ in range(ALIGN_CYCLES + 1):
                stages.append(delayed(m, stages[-1], 1))
        held = Signal(p.slot_beat_bits, reset_less=True)
        m.d.sync += held.eq(self.read_block.data)
        with m.If(fresh[ALIGN_CYCLES - 1]):
            m.d.sync += held.eq(0)
        lost, overflows = Signal(p.words_per_beat), Signal(p.words_per_beat)
        for n, (word, check) in enumerate(zip(words_at, residues_at, strict=True)):
            m.submodules[f"merge_{n}"] = merge = MergeWord(Fixed(p.numbers))
            m.d.comb += [
                merge.arriving.eq(arrival.data[word]),
                merge.arriving_residue.eq(arrival.data[check]),
                merge.exponent.eq(exponent),
                merge.operation.eq(found_kind),
                merge.held.eq(held.word_select(n, p.slot_word_bits)),
                merge.fresh.eq(fresh[ALIGN_CYCLES]),
                lost[n].eq(merge.lost),
                overflows[n].eq(merge.overflow),
                self.write_block.data.word_select(n, p.slot_word_bits).eq(merge.merged),
            ]
        m.d.comb += [
            self.write_block.enable.eq(blocks[-1]),
            self.write_block.address.eq(address[-1]),
        ]
        m.d.sync += self.overflows.eq(Mux(blocks[-1], sum(overflows), 0))

        # A block is noted with its last beat. A bit that was lost before stays lost.
        beat, before = address[ALIGN_CYCLES][: p.beat_bits], Signal()
        loses = Signal()
        m.d.comb += [
            self.read_lost.address.eq(address[ALIGN_CYCLES - 1][p.beat_bits :]),
            loses.eq(lost.any() | (before & beat.any())),
            self.write_note.address.eq(address[-1][p.beat_bits :]),
            self.write_note.data.exponent.eq(delayed(m, exponent, ALIGN_CYCLES + 1)),
        ]
        m.d.sync += [
            self.write_note.enable.eq(blocks[ALIGN_CYCLES] & beat.all()),
            self.write_note.data.lost.eq(loses | (self.read_lost.data & ~fresh[ALIGN_CYCLES])),
        ]
        with m.If(blocks[ALIGN_CYCLES]):
            m.d.sync += before.eq(loses)
        return blocks[1:]

    def _note_exponents(self, m: Module, operation: data.View) -> None:
        """Keep what the words agree on, and look up what those before have agreed on."""
        words = self.write_words
        m.d.comb += [
            self.read_exponents.address.eq(Cat(~operation.version, operation.delivery.slot)),
            self.write_exponents.enable.eq(words.enable),
            self.write_exponents.address.eq(words.address),
            self.write_exponents.data.eq(
                Cat(~words.data[32 * n :][:EXPONENT_BITS] for n in range(wire.LANES_MAX))
            ),
        ]
