"""Residues modulo 15: four check bits for each word of 32 bits, which addition carries along.

2**4 is 1 modulo 15, so a word's residue is the sum of its hexadecimal digits with end-around carry,
and that of a sum modulo 2**32 is the sum of both residues, less one if the sum wrapped (2**32 is 1,
too). A flipped bit changes a word by a power of two, which is never 0 modulo 15.

A residue of 15 is as good as one of 0.

Proved: `tests/formal/lane_alu.py`. Tested: `tests/hdl/test_residue.py`.
"""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

__all__ = [
    "RESIDUE_BITS",
    "WORD_BITS",
    "add",
    "checked_bits",
    "fits",
    "less_one",
    "residue",
    "residues_of",
]

RESIDUE_BITS = 4
"""Bits of a residue."""

WORD_BITS = 32
"""Bits of a word that has one."""


def checked_bits(bits: int) -> int:
    """Return the bits of `bits` bits of data with the residues of their words: 9/8 of them."""
    return bits + bits // WORD_BITS * RESIDUE_BITS


def add(m: Module, a: Value, b: Value) -> Value:
    """Return the sum of two residues: with end-around carry, of all bits at once."""
    makes, passes, total = Signal(RESIDUE_BITS), Signal(RESIDUE_BITS), Signal(RESIDUE_BITS)
    m.d.comb += [makes.eq(a & b), passes.eq(a ^ b)]
    for n in range(RESIDUE_BITS):
        # The carry into a bit comes from any of the bits below it, going round.
        carry: Value = makes[n]
        for below in range(RESIDUE_BITS - 1, 0, -1):
            bit = (n - below) % RESIDUE_BITS
            carry = makes[bit] | (passes[bit] & carry)
        m.d.comb += total[n].eq(passes[n] ^ carry)
    return total


def less_one(m: Module, term: Value, one: Value) -> Value:
    """Return the residue `term`, less 1 if `one` is set. Of 0 that is 14."""
    less = Signal(RESIDUE_BITS)
    # A bit changes if all below it are 0, except that of 0 the lowest one stays.
    m.d.comb += less.eq(term ^ Cat(term.any(), (~term[:n].any() for n in range(1, RESIDUE_BITS))))
    return Mux(one, less, term)


def residue(m: Module, word: Value) -> Value:
    """Return the residue of a word of whole digits, 0 to 15."""
    return add(m, *_two(m, _digits(word)))


def residues_of(m: Module, data: Value) -> Value:
    """Return the residues of all words of `data`, the first in the low bits."""
    return Cat(residue(m, data[n : n + WORD_BITS]) for n in range(0, len(data), WORD_BITS))


def fits(m: Module, word: Value, check: Value) -> Value:
    """Return whether `check` is the residue of `word`."""
    # The complement of a residue is its negative, so all digits add up to a multiple of 15. The two
    # that are left of them are 0 only for a word of 0 whose residue is 15, and never 15 both.
    a, b = _two(m, [*_digits(word), ~check])
    return (a ^ b).all() | ~(a | b).any()


def _digits(value: Value) -> list[Value]:
    """Return the hexadecimal digits of `value`."""
    return [value[n : n + RESIDUE_BITS] for n in range(0, len(value), RESIDUE_BITS)]


def _two(m: Module, terms: Sequence[Value]) -> tuple[Value, Value]:
    """Return two digits whose sum is that of all terms.

    Six terms at a time become three, which is one level of LUTs with six inputs.
    """
    terms = list(terms)
    while len(terms) > 2:
        sixes = [terms[n : n + 6] for n in range(0, len(terms), 6)]
        terms = [digit for six in sixes for digit in _counted(m, six)]
    return terms[0], terms[1]


def _counted(m: Module, terms: Sequence[Value]) -> list[Value]:
    """Return digits of the same sum as up to six: three, or two of three, or what there is.

    Bits of equal weight are counted. A carry out of the uppermost bit counts 16, which is 1, so it
    goes to the lowest one.
    """
    if len(terms) < 3:
        return list(terms)
    ones, twos = _full_adder(m, *terms[:3])
    if len(terms) == 3:
        return [ones, _doubled(twos, 1)]
    others, other_twos = _full_adder(m, *terms[3:], *[Const(0, RESIDUE_BITS)] * (6 - len(terms)))
    twos, fours = _full_adder(m, twos, other_twos, ones & others)
    return [ones ^ others, _doubled(twos, 1), _doubled(fours, 2)]


def _full_adder(m: Module, a: Value, b: Value, c: Value) -> tuple[Value, Value]:
    """Return sum and carry of each bit."""
    digit, carries = Signal(RESIDUE_BITS), Signal(RESIDUE_BITS)
    m.d.comb += [digit.eq(a ^ b ^ c), carries.eq((a & b) | (c & (a | b)))]
    return digit, carries


def _doubled(digit: Value, times: int) -> Value:
    """Return a digit, doubled modulo 15 so many times: its bits go round."""
    return Cat(digit[-times:], digit[:-times])
