"""Residues modulo 3: two check bits for each word of a slot, which addition carries along.

4 is 1 modulo 3, so a word's residue is the sum of its pairs of bits with end-around carry. A
flipped bit changes the word by a power of two, which is never a multiple of 3. Twice a number is
its negative, modulo 3: so the residue of a significand, wherever it has moved to, is its own or the
negative. A residue of 3 is as good as one of 0.

`afflux_hdl.lib.residue` has the residues modulo 15 of the words in packets: each is two pairs of
bits of the same kind. Beside a slot's word and its flags, an UltraRAM of 72 bits has no room for
those.

Tested: `tests/hdl/test_numbers.py`.
"""

from collections.abc import Iterable

from amaranth.hdl import Cat, Const, Module, Signal, Value, ValueLike

__all__ = ["RESIDUE_BITS", "fits", "minus", "pairs", "total"]

RESIDUE_BITS = 2
"""Bits of a residue."""


def pairs(value: Value) -> list[Value]:
    """Return the pairs of bits of a value, the lowest first."""
    return [value[n : n + 2] for n in range(0, len(value), 2)]


def minus(term: Value, negative: ValueLike = 1) -> Value:
    """Return the negative of a residue, if `negative` is set; else the residue."""
    both = Cat(term, Const(0, RESIDUE_BITS))[:RESIDUE_BITS]
    return both ^ Value.cast(negative).bool().replicate(RESIDUE_BITS)


def total(m: Module, terms: Iterable[Value]) -> Value:
    """Return the residue of a sum of residues: three at a time, a level of LUTs with six inputs."""
    left = list(terms)
    while len(left) > 1:
        threes = [left[n : n + 3] for n in range(0, len(left), 3)]
        left = [_sum(m, _sum(m, *three[:2]), *three[2:]) for three in threes]
    return left[0]


def fits(m: Module, terms: Iterable[Value], check: Value) -> Value:
    """Return whether `check` is the residue of a sum of residues."""
    rest = total(m, [*terms, minus(check)])
    return rest[0] == rest[1]


def _sum(m: Module, a: Value, b: Value | None = None) -> Value:
    """Return the residue of a sum, with end-around carry; without a second term the first one."""
    if b is None:
        return a
    makes, passes, result = Signal(2), Signal(2), Signal(2)
    m.d.comb += [makes.eq(a & b), passes.eq(minus(a, 0) ^ b)]
    for n in range(2):
        m.d.comb += result[n].eq(passes[n] ^ (makes[1 - n] | (passes[1 - n] & makes[n])))
    return result
