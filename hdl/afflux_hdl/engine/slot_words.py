"""What an engine that sums numbers does with each word of a block: merge it, and send the result.

A slot's word is `Fixed.slot` of a sum. Of all else it is the word, and its residue behind it, in
the low bits of that.

Tested: `tests/sim/test_engine_sums.py`.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.contract import wire
from afflux_hdl.engine.lane_alu import LaneAlu
from afflux_hdl.lib import residue
from afflux_hdl.numbers.accumulate import Accumulate
from afflux_hdl.numbers.align import Align
from afflux_hdl.numbers.formats import Fixed
from afflux_hdl.numbers.max_min import MaxMin
from afflux_hdl.numbers.round import Round

__all__ = ["ALIGN_CYCLES", "ROUND_CYCLES", "MergeWord", "Operation", "SendWord", "delayed"]

ALIGN_CYCLES = 3
"""Cycles for which a slot's word waits for what is added to it."""

ROUND_CYCLES = 5
"""Cycles from a slot's word to what is sent of it."""

Operation = data.StructLayout({"low": 2, "opcode": 4, "dtype": 2})
"""An operation on words.

Members:
    opcode: That of the round: `wire.Opcode` or `wire.NumberOpcode`.
    low: The low bits of the frame's own, which count for integers.
    dtype: `wire.Dtype`, of numbers.
"""


def delayed(m: Module, value: Value | data.View, cycles: int) -> Value | data.View:
    """Return a value, so many cycles later."""
    for _ in range(cycles):
        later = Signal.like(value, reset_less=False)
        m.d.sync += later.eq(value)
        value = later
    return value


class MergeWord(wiring.Component):
    """Merges one word of a contribution with the slot's word.

    Latency: 4 cycles from `arriving`, 1 from `held`. Throughput: a word in each cycle. No
    back-pressure.

    Members:
        arriving, arriving_residue: The contribution's word.
        exponent: With it: E of its block.
        operation: The operation that it is for.
        held: The slot's word, three cycles later; all zeros if the slot holds nothing yet.
        fresh: With `held`: the slot holds nothing yet.
        lost: With `held`: a bit of the contribution is lost, so its block is not summed.
        merged: The slot's new word.
        overflow: With `merged`: a SUM of integers left the range of int32.
    """

    def __init__(self, fixed: Fixed) -> None:
        self._fixed = fixed
        super().__init__(
            {
                "arriving": In(32),
                "arriving_residue": In(residue.RESIDUE_BITS),
                "exponent": In(fixed.exponent_bits),
                "operation": In(Operation),
                "held": In(fixed.slot().size),
                "fresh": In(1),
                "lost": Out(1),
                "merged": Out(fixed.slot().size),
                "overflow": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        f = self._fixed
        operation = delayed(m, self.operation, ALIGN_CYCLES)
        arriving = delayed(m, self.arriving, ALIGN_CYCLES)
        check = delayed(m, self.arriving_residue, ALIGN_CYCLES)
        held, held_check = self.held[:32], self.held[32:][: residue.RESIDUE_BITS]
        m.submodules.align = align = Align(f)
        m.submodules.accumulate = accumulate = Accumulate(f)
        m.submodules.integers = integers = LaneAlu()
        m.submodules.extremes = extremes = MaxMin(f)
        sums, is_extreme = operation.opcode[3], operation.opcode[2]
        m.d.comb += [
            align.word.eq(self.arriving),
            align.residue.eq(self.arriving_residue),
            align.dtype.eq(self.operation.dtype),
            align.exponent.eq(self.exponent),
            self.lost.eq(align.lost & sums),
            accumulate.addend.eq(align.o),
            accumulate.halves.eq(operation.dtype[1]),
            accumulate.held.eq(self.held),
            integers.opcode.eq(operation.low),
            integers.fresh.eq(self.fresh),
            integers.held.eq(held),
            integers.held_residue.eq(held_check),
            integers.arriving.eq(arriving),
            integers.arriving_residue.eq(check),
            extremes.minimum.eq(operation.opcode == wire.NumberOpcode.MIN),
            extremes.first.eq(self.fresh),
            extremes.dtype.eq(operation.dtype),
            extremes.held.eq(held),
            extremes.arriving.eq(arriving),
        ]
        # The residue of an extreme is made anew, and spoiled if a word that it is of did not fit.
        wrong, found_sums, found_extreme = Signal(), Signal(), Signal()
        m.d.sync += [
            wrong.eq(
                ~residue.fits(m, arriving, check)
                | ~(self.fresh | residue.fits(m, held, held_check))
            ),
            found_sums.eq(sums),
            found_extreme.eq(is_extreme),
        ]
        anew = residue.less_one(m, residue.residue(m, extremes.merged), wrong)
        m.d.comb += [
            self.merged.eq(Cat(integers.merged, integers.merged_residue)),
            self.overflow.eq(integers.overflow & ~found_sums & ~found_extreme),
        ]
        with m.If(found_sums):
            m.d.comb += self.merged.eq(accumulate.merged)
        with m.Elif(found_extreme):
            m.d.comb += self.merged.eq(Cat(extremes.merged, anew))
        return m


class SendWord(wiring.Component):
    """Makes of a slot's word what is sent.

    Latency: 5 cycles. Throughput: a word in each cycle. No back-pressure.

    Members:
        slot: The slot's word, with all contributions.
        opcode, dtype: Of its round.
        exponent: E of its block.
        all_present: All workers have contributed to the block.
        lost: The block is not summed.
        word: The word to be sent.
        check: Its residue. It does not fit if the slot's word has not fitted its own.
    """

    def __init__(self, fixed: Fixed) -> None:
        self._fixed = fixed
        super().__init__(
            {
                "slot": In(fixed.slot().size),
                "opcode": In(4),
                "dtype": In(2),
                "exponent": In(fixed.exponent_bits),
                "all_present": In(1),
                "lost": In(1),
                "word": Out(32),
                "check": Out(residue.RESIDUE_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.round = rounds = Round(self._fixed)
        kept = delayed(m, self.slot[: 32 + residue.RESIDUE_BITS], ROUND_CYCLES)
        sums = delayed(m, self.opcode[3], ROUND_CYCLES)
        m.d.comb += [
            rounds.slot.eq(self.slot),
            rounds.dtype.eq(self.dtype),
            rounds.exponent.eq(self.exponent),
            rounds.scale.eq(self.opcode[:3]),
            rounds.all_present.eq(self.all_present),
            rounds.lost.eq(self.lost),
        ]
        anew = residue.less_one(m, residue.residue(m, rounds.word), rounds.wrong)
        m.d.comb += Cat(self.word, self.check).eq(Mux(sums, Cat(rounds.word, anew), kept))
        return m
