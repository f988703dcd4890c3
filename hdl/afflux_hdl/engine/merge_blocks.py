"""The merge stage's part for blocks.

::

    cycle     t        t+1        t+2      t+3      t+4      t+5
    arriving  address  aligned    …        …        added    write back
    slot                          address  data     added
    exponent  chosen   aligned by

Blocks that arrive are aligned before they are added, so the slot's beats are read two cycles later
than the receive buffer, at the same phase. If `Parameters.arrival_waits`, all but that address is a
cycle later. So it is on narrow buses, where the lane, and with it the beat of words that has the
exponent, is known only when a block begins::

    exponent  address  chosen     aligned by

Of a block of partial sums both planes are read, the upper one's beat two cycles behind the lower
one's, so that the slot's beats, which are merged with the former, keep to their phases::

    cycle     t        t+1      t+2      t+3      t+4      t+5      t+6      t+7
    arriving  lower 0  lower 1  upper 0  upper 1  lower 2  lower 3  upper 2  upper 3

Tested: `tests/sim/test_engine_sums.py`, `tests/sim/test_engine_tree.py`.
"""

from typing import NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from afflux_hdl.engine.block_notes import EXPONENT_BITS, Loss, merge_note_ports
from afflux_hdl.engine.lane_walk import LaneWalk
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.engine.slot_words import ALIGN_CYCLES, MergeWord, Operation, delayed
from afflux_hdl.lib.memory_ports import ReadPort, WritePort
from afflux_hdl.lib.residue import RESIDUE_BITS
from afflux_hdl.numbers.formats import Fixed

__all__ = ["MergeBlocks", "PlaneWalk", "walk_planes"]

GIVEN = ("opcode", "dtype", "partial", "rounded")
"""Members of an operation that are known when its blocks are addressed."""

FINDINGS = ("lost", "beyond", "overflows")

PLANES_APART = 2
"""Cycles from a beat of the lower plane to that of the upper one."""


class PlaneWalk(NamedTuple):
    """The way through a block in the receive buffer.

    Attributes:
        beat: Of the slot's block.
        merges: The beat that arrives is merged: not one of the lower plane.
        advance: How far the next beat is in the receive buffer.
    """

    beat: Value
    merges: Value
    advance: Value


def walk_planes(m: Module, parameters: Parameters, walk: LaneWalk, partial: Value) -> PlaneWalk:
    """Return how a walk goes through blocks, and through both planes of partial sums."""
    p = parameters
    steps = Cat(walk.beat, walk.second)
    upper = steps[1]
    beat = Mux(partial, Cat(steps[0], steps[2:]), walk.beat)
    apart = p.block_beats - 1
    turns = partial & steps[0]
    advance = Signal(range(-apart, apart + 1))
    with m.If(turns & ~upper):
        m.d.comb += advance.eq(apart)
    with m.Elif(turns & ~steps.all()):
        m.d.comb += advance.eq(-apart)
    with m.Else():
        m.d.comb += advance.eq(1)
    return PlaneWalk(beat, ~partial | upper, advance)


class MergeBlocks(wiring.Component):
    """Merges blocks into slots, and notes their exponents and what they have lost.

    Latency: 4 cycles from `words` to `write_block`. Throughput: a beat in each cycle. No
    back-pressure.

    Members:
        address: That of the slot's beat with which the beat will be merged that the receive buffer
            is being read for.
        opcode, dtype: With it: of the slot's round.
        partial, rounded: With it: as in `slot_words.Operation`.
        arrived: A cycle later, or two if `Parameters.arrival_waits`: that beat is here.
        arrived_address, fresh, low, words: With it: the same address; the slot holds nothing of
            its block yet; the low bits of the frame's opcode; its words, and behind them their
            residues.
        read_block, write_block: Slot memory.
        read_exponents, read_loss, write_note: Block notes.
        overflows: Elements of this cycle's beat whose SUM left the range of int32.
        busy: Something is in flight.
    """

    def __init__(self, parameters: Parameters) -> None:
        p = parameters
        self._parameters = p
        block = (p.block_address_bits, p.slot_beat_bits)
        super().__init__(
            {
                "address": In(p.block_address_bits),
                "opcode": In(4),
                "dtype": In(2),
                "partial": In(1),
                "rounded": In(1),
                "arrived": In(1),
                "arrived_address": In(p.block_address_bits),
                "fresh": In(1),
                "low": In(2),
                "words": In(p.checked_bits),
                "read_block": Out(ReadPort(*block)),
                "write_block": Out(WritePort(*block)),
                **merge_note_ports(p),
                "overflows": Out(range(p.words_per_beat + 1)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self._parameters
        exponent = self._find_exponent(m)
        operation = Signal(Operation)
        given = [getattr(self, name) for name in GIVEN]
        later = [delayed(m, value, 1 + p.arrival_waits) for value in (*given, Cat(*given).xor())]
        for name, value in zip(GIVEN, later, strict=False):
            m.d.comb += operation[name].eq(value)
        m.d.comb += [operation.low.eq(self.low), operation.parity.eq(later[-1] ^ self.low.xor())]
        # Without a reset, so that a tool can make LUTs of these shift registers.
        lower = self.words
        for n in range(PLANES_APART):
            later = Signal(p.checked_bits, name=f"lower_{n}", reset_less=True)
            m.d.sync += later.eq(lower)
            lower = later
        blocks, fresh, address = [self.arrived], [self.fresh], [self.arrived_address]
        # Whether it is, and the opposite, which makes it strange if they are the same.
        begun = [~self.fresh]
        for stages in (blocks, fresh, begun, address):
            for _ in range(ALIGN_CYCLES + 1):
                stages.append(delayed(m, stages[-1], 1))
        m.d.comb += self.read_block.address.eq(delayed(m, self.address, ALIGN_CYCLES - 1))
        held = Signal(p.slot_beat_bits, reset_less=True)
        slot = delayed(m, self.read_block.data, p.arrival_waits - p.ram_output_register)
        m.d.sync += held.eq(slot)
        with m.If(fresh[ALIGN_CYCLES - 1]):
            m.d.sync += held.eq(0)
        lost, beyond, overflows = (Signal(p.words_per_beat, name=name) for name in FINDINGS)
        residues, lower_residues = self.words[p.bus_bits :], lower[p.bus_bits :]
        for n in range(p.words_per_beat):
            m.submodules[f"word_{n}"] = word = MergeWord(Fixed())
            m.d.comb += [
                word.arriving.eq(self.words.word_select(n, 32)),
                word.arriving_residue.eq(residues.word_select(n, RESIDUE_BITS)),
                word.lower.eq(lower.word_select(n, 32)),
                word.lower_residue.eq(lower_residues.word_select(n, RESIDUE_BITS)),
                word.exponent.eq(exponent[:-1]),
                word.operation.eq(operation),
                word.held.eq(held.word_select(n, p.slot_word_bits)),
                word.fresh.eq(fresh[ALIGN_CYCLES]),
                word.strange.eq(fresh[ALIGN_CYCLES] == begun[ALIGN_CYCLES]),
                lost[n].eq(word.lost),
                beyond[n].eq(word.beyond),
                overflows[n].eq(word.overflow),
                self.write_block.data.word_select(n, p.slot_word_bits).eq(word.merged),
            ]
        m.d.comb += [
            self.write_block.enable.eq(blocks[-1]),
            self.write_block.address.eq(address[-1]),
            self.busy.eq(Cat(blocks[1:]).any() | self.write_note.enable),
        ]
        m.d.sync += self.overflows.eq(Mux(blocks[-1], sum(overflows), 0))

        # A block is noted behind its last beat. A bit that was lost before stays lost.
        last = ALIGN_CYCLES + 1
        beat, before = address[last][: p.beat_bits], Signal(Loss)
        strange = delayed(m, exponent.xor(), last) | (fresh[last] == begun[last])
        loses, found, loss = Signal(), self.read_loss.data, self.write_note.data.loss
        m.d.comb += [
            self.read_loss.address.eq(address[last - 1][p.beat_bits :]),
            loses.eq(
                (delayed(m, lost.any(), 1) | beyond.any() | strange)
                | ((before.lost | ~before.kept) & beat.any())
            ),
            self.write_note.address.eq(delayed(m, address[last][p.beat_bits :], 1)),
            self.write_note.data.exponent.eq(delayed(m, exponent, last + 1)),
        ]
        m.d.sync += [
            self.write_note.enable.eq(blocks[last] & beat.all()),
            loss.lost.eq(loses | ((found.lost | ~found.kept) & ~fresh[last])),
            loss.kept.eq(~(loses | ((found.lost | ~found.kept) & ~fresh[last]))),
        ]
        with m.If(blocks[last]):
            m.d.sync += [before.lost.eq(loses), before.kept.eq(~loses)]
        return m

    def _find_exponent(self, m: Module) -> Value:
        """Return E of the block that has arrived: what the words of the other version agree on."""
        p = self._parameters
        lane = self.address[p.beat_bits :][: p.lane_bits]
        version, slot = self.address[-p.slot_bits - 1], self.address[-p.slot_bits :]
        within = ceil_log2(p.words_per_beat)
        beat = Cat(lane, Const(0, p.words_beat_bits))[within:][: p.words_beat_bits]
        m.d.comb += self.read_exponents.address.eq(Cat(beat, ~version, slot))
        place = lane[:within]
        # Words of one beat do not change their address with the lane.
        waits = p.arrival_waits
        if p.header_beats > 1:
            place, waits = delayed(m, place, 1), 0
        found = self.read_exponents.data.word_select(place, EXPONENT_BITS)
        return delayed(m, found, 1 + waits)
