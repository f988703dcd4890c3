"""A word of a block: merged with the slot's, and sent.

A slot's word is `Fixed.slot` of a sum. Of all else it is the word, and its residue behind it, in
the low bits of that, with a mark behind them that no sum has.

Tested: `tests/sim/test_engine_sums.py`, `tests/sim/test_engine_tree.py`.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.contract import wire
from afflux_hdl.engine.lane_alu import LaneAlu
from afflux_hdl.lib import residue
from afflux_hdl.numbers.accumulate import Accumulate
from afflux_hdl.numbers.align import Align
from afflux_hdl.numbers.formats import GUARD_BITS, Fixed, Special
from afflux_hdl.numbers.max_min import MaxMin
from afflux_hdl.numbers.partial_words import FromPartial, ToPartial
from afflux_hdl.numbers.residue import minus, pairs, total
from afflux_hdl.numbers.round import Round

__all__ = ["ALIGN_CYCLES", "ROUND_CYCLES", "MergeWord", "Operation", "SendWord", "delayed"]

ALIGN_CYCLES = 3
"""Cycles for which a slot's word waits for what is added to it."""

ROUND_CYCLES = 5
"""Cycles from a slot's word to what is sent of it."""

TO_PARTIAL_CYCLES = 2
"""Cycles to a word of partial sums, which waits for the rest."""

Operation = data.StructLayout(
    {"low": 2, "opcode": 4, "dtype": 2, "partial": 1, "rounded": 1, "parity": 1}
)
"""An operation on words.

Members:
    opcode: That of the round: `wire.Opcode` or `wire.NumberOpcode`.
    low: The low bits of the frame's own, which count for integers.
    dtype: `wire.Dtype`, of numbers.
    partial: The frame has partial sums.
    rounded: It is the parent's, and replaces what the slot holds.
    parity: That of the others.
"""

MARK = Cat(Const(Special.NAN, 2), Const(Special.NAN, 2), Const(0, 2))
"""The flags of a slot's word that is not a sum. An element of a sum that is NaN is not -0.

The residue beside them is one that no sum with these flags has. With other flags it is not right.
"""


def _has_mark(fixed: Fixed, slot: Value) -> Value:
    view = data.View(fixed.slot(), slot)
    return Cat(view.special.as_value(), view.not_minus_zero) == MARK


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
        arriving, arriving_residue: The contribution's word; of partial sums the upper plane's.
        lower, lower_residue: With it: of partial sums the word of the lower plane.
        exponent: With it: E of its block.
        operation: The operation that it is for.
        held: The slot's word, three cycles later; all zeros if the slot holds nothing yet.
        fresh: With `held`: the slot holds nothing yet.
        strange: With `held`: that is not known.
        lost: With `held`: a bit of the contribution is lost, so its block is not summed; or
            a bit of the operation has flipped.
        merged: The slot's new word.
        overflow: With `merged`: a SUM of integers left the range of int32.
        beyond: With `merged`: the sum has more bits than a partial sum, so its block is not summed;
            or a bit has flipped.
    """

    def __init__(self, fixed: Fixed) -> None:
        self._fixed = fixed
        super().__init__(
            {
                "arriving": In(32),
                "arriving_residue": In(residue.RESIDUE_BITS),
                "lower": In(32),
                "lower_residue": In(residue.RESIDUE_BITS),
                "exponent": In(fixed.exponent_bits),
                "operation": In(Operation),
                "held": In(fixed.slot().size),
                "fresh": In(1),
                "strange": In(1),
                "lost": Out(1),
                "merged": Out(fixed.slot().size),
                "overflow": Out(1),
                "beyond": Out(1),
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
        m.submodules.partial = partial = FromPartial(f)
        m.submodules.accumulate = accumulate = Accumulate(f)
        # One comparison serves both.
        m.submodules.integers = integers = LaneAlu()
        m.submodules.extremes = extremes = MaxMin(f)
        sums, is_extreme = Signal(), Signal()
        addend, lost, odd = Signal(f.addend()), Signal(), Signal()
        m.d.comb += [
            sums.eq(operation.opcode[3] & ~operation.rounded),
            is_extreme.eq(~operation.opcode[3] & operation.opcode[2] & ~operation.rounded),
            addend.eq(Mux(operation.partial, partial.o.as_value(), align.o.as_value())),
            lost.eq(Mux(operation.partial, partial.lost, align.lost)),
            partial.lower.eq(self.lower),
            partial.lower_residue.eq(self.lower_residue),
            partial.upper.eq(self.arriving),
            partial.upper_residue.eq(self.arriving_residue),
            partial.halves.eq(self.operation.dtype[1]),
            align.word.eq(self.arriving),
            align.residue.eq(self.arriving_residue),
            align.dtype.eq(self.operation.dtype),
            align.exponent.eq(self.exponent),
            odd.eq(self.strange | operation.as_value().xor()),
            self.lost.eq((lost & sums) | odd),
            accumulate.addend.eq(addend),
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
            integers.less.eq(extremes.less),
            extremes.dtype.eq(operation.dtype & is_extreme.replicate(2)),
            extremes.held.eq(held),
            extremes.arriving.eq(arriving),
        ]
        # The residue of an extreme is spoiled if a word that it is of did not fit.
        # One is found of three, or else a bit of these has flipped.
        wrong, unmarked, none_found, spoiled = Signal(), Signal(), Signal(), Signal()
        found_sums, found_extreme, found_integer = Signal(), Signal(), Signal()
        m.d.sync += [
            unmarked.eq(odd | (~self.fresh & ~_has_mark(f, self.held))),
            wrong.eq(
                ~residue.fits(m, arriving, check)
                | ~(self.fresh | residue.fits(m, held, held_check))
            ),
            found_sums.eq(sums),
            found_extreme.eq(is_extreme),
            found_integer.eq(~sums & ~is_extreme),
        ]
        anew = residue.less_one(m, residue.add(m, *extremes.checks), wrong)
        m.d.comb += [
            none_found.eq(~(found_sums | found_extreme | found_integer)),
            spoiled.eq(unmarked | (found_extreme == found_integer)),
            self.merged.eq(self._marked(m, integers.merged, integers.merged_residue, spoiled)),
            self.beyond.eq(
                self._is_beyond(m, operation.dtype[1], addend.value, accumulate) & found_sums
                | none_found
            ),
            self.overflow.eq(integers.overflow & ~found_sums & ~found_extreme),
        ]
        with m.If(found_sums):
            m.d.comb += self.merged.eq(accumulate.merged)
        with m.Elif(found_extreme):
            m.d.comb += self.merged.eq(self._marked(m, extremes.merged, anew, spoiled))
        return m

    def _marked(self, m: Module, word: Value, check: Value, unmarked: Value) -> Value:
        """Return what a slot holds of a word that is not a sum, or, if `unmarked`, of none."""
        rest = self._fixed.slot_bits - len(word) - len(check)
        # Modulo 3 the word is worth what its residue is, and both are worth the negative of that.
        no_sum = total(m, [*(minus(pair) for pair in pairs(check)), Const(1, 2)])
        return Cat(word, check, Const(0, rest), MARK ^ unmarked, no_sum)

    def _is_beyond(self, m: Module, halves: Value, addend: Value, sums: Accumulate) -> Value:
        """Return whether a sum has left its place, or means something else as a partial sum.

        No sum of 64 numbers comes so near to the least integer.
        """
        f = self._fixed
        beyond: Value = Const(0, 1)
        was_halves = delayed(m, halves, 1)
        held, total = sums.held.value, sums.merged.value
        for form, size, counts in (
            (f.wide, f.slot_bits, ~was_halves),
            *((f.halves[0], end, was_halves) for end in (f.half, f.slot_bits)),
        ):
            both, either = held[size - 1] & addend[size - 1], held[size - 1] | addend[size - 1]
            both, either = delayed(m, both, 1), delayed(m, either, 1)
            sign = total[size - 1]
            bits = f.slot_bits if form == f.wide else f.half
            least = size - bits + f.hidden(bits) + GUARD_BITS - form.fraction_bits
            near = sign & ~total[least : size - 1].any()
            beyond = beyond | (counts & ((both & ~sign) | (~either & sign) | near))
        return beyond


class SendWord(wiring.Component):
    """Makes of a slot's word what is sent.

    Latency: 5 cycles. Throughput: a word in each cycle. No back-pressure.

    Members:
        slot: The slot's word, with all contributions.
        opcode, dtype: Of its round.
        partial: Partial sums are sent.
        upper: With it: of the upper plane.
        rounded: The slot's word is the parent's.
        exponent: E of its block.
        all_present: All workers have contributed to the block.
        lost: The block is not summed.
        wrong: These two are not known.
        word: The word to be sent.
        check: Its residue. It does not fit if the slot's word has not fitted its own, or if
            `wrong`.
    """

    def __init__(self, fixed: Fixed) -> None:
        self._fixed = fixed
        super().__init__(
            {
                "slot": In(fixed.slot().size),
                "opcode": In(4),
                "dtype": In(2),
                "partial": In(1),
                "upper": In(1),
                "rounded": In(1),
                "exponent": In(fixed.exponent_bits),
                "all_present": In(1),
                "lost": In(1),
                "wrong": In(1),
                "word": Out(32),
                "check": Out(residue.RESIDUE_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        f = self._fixed
        m.submodules.round = rounds = Round(f)
        m.submodules.unrounded = unrounded = ToPartial(f)
        # A partial sum that is asked for again may find that the parent's result has replaced it.
        is_sum, sums, overtaken = Signal(), Signal(), Signal()
        m.d.comb += [
            is_sum.eq(~_has_mark(f, self.slot)),
            overtaken.eq(self.partial & ~is_sum),
            sums.eq(self.opcode[3] & ~self.rounded & ~overtaken),
            rounds.slot.eq(self.slot),
            rounds.dtype.eq(self.dtype),
            rounds.exponent.eq(self.exponent),
            rounds.scale.eq(self.opcode[:3]),
            rounds.all_present.eq(self.all_present),
            rounds.lost.eq(self.lost),
            # It is also chosen wrongly if the register has flipped that chooses below.
            rounds.unfit.eq(self.wrong | ~is_sum | ~sums | self.partial),
            unrounded.slot.eq(self.slot),
            unrounded.halves.eq(self.dtype[1]),
            unrounded.upper.eq(self.upper),
            unrounded.all_present.eq(self.all_present),
            unrounded.lost.eq(self.lost),
            unrounded.wrong.eq(self.wrong),
        ]
        # Those that are not rounded are here sooner.
        kept = Signal(32 + residue.RESIDUE_BITS)
        m.d.sync += kept.eq(self.slot)
        with m.If(is_sum):
            # No word fits that.
            m.d.sync += kept.eq(Cat(Const(0, 32), Const(1, residue.RESIDUE_BITS)))
        kept = delayed(m, kept, TO_PARTIAL_CYCLES - 1)
        whole = delayed(m, self.partial & sums, TO_PARTIAL_CYCLES)
        early = Mux(whole, Cat(unrounded.word, unrounded.check), kept)
        early = delayed(m, early, ROUND_CYCLES - TO_PARTIAL_CYCLES)
        rounded = delayed(m, sums & ~self.partial, ROUND_CYCLES)
        anew = residue.less_one(m, rounds.check, rounds.wrong)
        m.d.comb += Cat(self.word, self.check).eq(Mux(rounded, Cat(rounds.word, anew), early))
        return m
