"""Partial sums: from a packet to what is added to a slot, and from a slot to a packet.

A slot's number has the form of a partial sum (`docs/protocol.md`, section 8.6), with its specials
beside it. So this is a matter of where bits go: a word of a slot lies in two words of a block, one
of the lower plane and one of the upper.

Tested: `tests/hdl/test_partial_words.py`, `tests/sim/test_engine_tree.py`.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from afflux_hdl.lib import residue as of_words
from afflux_hdl.numbers.formats import Fixed, Special
from afflux_hdl.numbers.residue import RESIDUE_BITS, fits, minus, pairs, total

__all__ = ["FromPartial", "ToPartial"]

NOT_SUMMED, MINUS_ZERO, NAN, INFINITY, MINUS_INFINITY = range(5)
"""How far the integers that are not sums are above the least one."""

CODE_BITS = 3


class FromPartial(wiring.Component):
    """Makes partial sums what `Accumulate` adds to a slot's word.

    Latency: 3 cycles. Throughput: a word in each cycle. No back-pressure. The addend's residue is
    made of those of the words.

    Members:
        lower, upper: The words of both planes.
        lower_residue, upper_residue: Theirs, modulo 15 (`afflux_hdl.lib.residue`).
        halves: The slot's word has two elements.
        o: The addend, three cycles later.
        lost: An element is not summed, three cycles later.
    """

    def __init__(self, fixed: Fixed) -> None:
        self._fixed = fixed
        super().__init__(
            {
                "lower": In(32),
                "upper": In(32),
                "lower_residue": In(of_words.RESIDUE_BITS),
                "upper_residue": In(of_words.RESIDUE_BITS),
                "halves": In(1),
                "o": Out(fixed.addend()),
                "lost": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        f = self._fixed
        # Cycle 1: the bits in their places.
        value1 = Signal(f.slot_bits)
        halves1, residue1 = Signal(), Signal(RESIDUE_BITS)
        size = len(self.lower) // 2
        low, high = (self.lower[:size], self.lower[size:]), (self.upper[:size], self.upper[size:])
        m.d.sync += [
            value1.eq(
                Cat(low[0], Mux(self.halves, Cat(high[0], low[1]), Cat(low[1], high[0])), high[1])
            ),
            halves1.eq(self.halves),
            residue1.eq(total(m, [*pairs(self.lower_residue), *pairs(self.upper_residue)])),
        ]
        # Cycle 2: what is not a sum becomes 0. A sign counts -2**w where the words count nothing,
        # and that is -1, modulo 3, as w is even.
        rest = [value1[CODE_BITS : f.half - 1], value1[f.half + CODE_BITS : -1]]
        wide_rest = value1[CODE_BITS:-1]
        codes = [value1[:CODE_BITS], Mux(halves1, value1[f.half :][:CODE_BITS], value1[:CODE_BITS])]
        signs = [Mux(halves1, value1[f.half - 1], value1[-1]), value1[-1]]
        value2 = Signal(f.slot_bits)
        special2, not_minus_zero2, lost2 = Signal(4), Signal(2), Signal()
        residue2 = Signal(RESIDUE_BITS)
        terms = [
            residue1,
            minus(Cat(value1[-1], Const(0, 1))),
            minus(Cat(value1[f.half - 1] & halves1, Const(0, 1))),
        ]
        lost: Value = Const(0, 1)
        for e, (code, sign) in enumerate(zip(codes, signs, strict=True)):
            reserved = Signal(name=f"reserved_{e}")
            m.d.comb += reserved.eq(
                sign & (code <= MINUS_INFINITY) & ~Mux(halves1, rest[e].any(), wide_rest.any())
            )
            place = slice(e * f.half, (e + 1) * f.half)
            special, not_minus_zero = Signal(2, name=f"special_{e}"), Signal(name=f"not_minus_{e}")
            m.d.comb += [
                special.eq(Mux(reserved, _special_of(code), 0)),
                not_minus_zero.eq(~(reserved & (code == MINUS_ZERO))),
            ]
            m.d.sync += [
                value2[place].eq(value1[place] & ~reserved.replicate(f.half)),
                not_minus_zero2[e].eq(not_minus_zero),
                special2[2 * e : 2 * e + 2].eq(special),
            ]
            lost = lost | (reserved & (code == NOT_SUMMED))
            counts = reserved & (halves1 if e == 0 else Const(1))
            gone = minus(Mux(counts, _residue_of_reserved(code), 0))
            terms.append(total(m, [gone, special, Cat(Const(0, e), not_minus_zero)]))
        m.d.sync += [lost2.eq(lost), residue2.eq(total(m, terms))]
        m.d.sync += [
            self.o.value.eq(value2),
            self.o.special.eq(special2),
            self.o.not_minus_zero.eq(not_minus_zero2),
            self.o.residue.eq(residue2),
            self.lost.eq(lost2),
        ]
        return m


def _special_of(code: Value) -> Value:
    """Return `Special` of an integer that is not a sum."""
    return Mux(
        code == NAN,
        Special.NAN,
        Mux(
            code == INFINITY,
            Special.INFINITY,
            Mux(code == MINUS_INFINITY, Special.MINUS_INFINITY, 0),
        ),
    )


def _residue_of_reserved(code: Value) -> Value:
    """Return the residue of an integer that is not a sum: 1, that of -2**(w - 1), and its code."""
    low = Cat(code[0], code[1])
    return Mux(code[2], 2, Mux(low == 0, 1, Mux(low == 1, 2, Mux(low == 2, 0, 1))))


class ToPartial(wiring.Component):
    """Makes a slot's word the words of both planes, one of which is asked for.

    Latency: 2 cycles. Throughput: a word in each cycle. No back-pressure.

    Members:
        slot: The slot's word, with all contributions.
        halves: It has two elements.
        upper: Of the upper plane.
        all_present: All workers have contributed, so a sum may be -0.
        lost: The block is not summed.
        wrong: These two are not known.
        word: The word of the block, two cycles later.
        check: Its residue, modulo 15. It does not fit if the slot's word has not fitted its own, if
            a bit has flipped, or if `wrong`.
    """

    def __init__(self, fixed: Fixed) -> None:
        self._fixed = fixed
        super().__init__(
            {
                "slot": In(fixed.slot()),
                "halves": In(1),
                "upper": In(1),
                "all_present": In(1),
                "lost": In(1),
                "wrong": In(1),
                "word": Out(32),
                "check": Out(of_words.RESIDUE_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        f = self._fixed
        slot = Signal(f.slot(), name="slot1")
        halves, upper, all_present, lost = Signal(), Signal(), Signal(), Signal()
        unknown, parity = Signal(), Signal()
        m.d.sync += [
            slot.eq(self.slot),
            halves.eq(self.halves),
            upper.eq(self.upper),
            all_present.eq(self.all_present),
            lost.eq(self.lost),
            unknown.eq(self.wrong),
            parity.eq(Cat(self.halves, self.upper, self.all_present, self.lost).xor()),
        ]
        odd = Cat(halves, upper, all_present, lost, parity).xor()
        # The words and their residues are made at once of what is checked at once.
        reserved, codes = Signal(2), [Signal(CODE_BITS, name=f"code_{e}") for e in range(2)]
        for e, code in enumerate(codes):
            special = slot.special[e]
            m.d.comb += reserved[e].eq(
                lost | special.any() | (~slot.not_minus_zero[e] & all_present)
            )
            with m.If(lost):
                m.d.comb += code.eq(NOT_SUMMED)
            with m.Elif(special.any()):
                m.d.comb += code.eq(Mux(special[0], Mux(special[1], NAN, INFINITY), MINUS_INFINITY))
            with m.Else():
                m.d.comb += code.eq(MINUS_ZERO)
        zeros = Const(0, f.half - CODE_BITS - 1)
        integers = Signal(f.slot_bits)
        for e, code in enumerate(codes):
            place = slice(e * f.half, (e + 1) * f.half)
            # A wide element has its code in the lower half and its sign in the upper one.
            own = Cat(code if e == 0 else Mux(halves, code, 0), zeros, halves if e == 0 else 1)
            m.d.comb += integers[place].eq(Mux(reserved[e], own, slot.value[place]))
        size = 16
        parts = [integers[n : n + size] for n in range(0, f.slot_bits, size)]
        word = Signal(32)
        wide = Mux(upper, Cat(parts[2], parts[3]), Cat(parts[0], parts[1]))
        two = Mux(upper, Cat(parts[1], parts[3]), Cat(parts[0], parts[2]))
        m.d.comb += word.eq(Mux(halves, two, wide))
        check, wrong = Signal(of_words.RESIDUE_BITS), Signal()
        m.d.sync += [
            self.word.eq(word),
            check.eq(of_words.residue(m, word)),
            wrong.eq(unknown | odd | (~fits(m, f.digits(slot, halves), slot.residue) & ~lost)),
        ]
        m.d.comb += self.check.eq(of_words.less_one(m, check, wrong))
        return m
