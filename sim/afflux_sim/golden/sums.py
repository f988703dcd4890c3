"""Sums, maxima and minima of numbers as exact rationals: `docs/protocol.md`, section 8.

A number is a `Fraction`, or one of the values that no fraction is. Whatever comes in is turned into
numbers, numbers are added, and the total is turned into bits once.
"""

from collections.abc import Sequence
from enum import Enum
from fractions import Fraction

from afflux_sim.golden.rounding import Format, round_to_bits

__all__ = [
    "Number",
    "Special",
    "add",
    "bits_of_number",
    "extreme",
    "number_of_bits",
    "number_of_partial",
    "partial_of_number",
    "unit_of_partial",
]


class Special(Enum):
    """A value that is not a fraction. +0 is the fraction 0."""

    NEGATIVE_ZERO = 1
    NAN = 2
    PLUS_INFINITY = 3
    MINUS_INFINITY = 4
    NOT_SUMMED = 5


Number = Fraction | Special


def number_of_bits(bits: int, of: Format) -> Number:
    """Return the number that these bits stand for."""
    magnitude = bits & (of.sign - 1)
    negative = bool(bits & of.sign)
    if magnitude > of.infinity:
        return Special.NAN
    if magnitude == of.infinity:
        return Special.MINUS_INFINITY if negative else Special.PLUS_INFINITY
    if magnitude == 0:
        return Special.NEGATIVE_ZERO if negative else Fraction(0)
    exponent, fraction = magnitude >> of.fraction_bits, magnitude % 2**of.fraction_bits
    significand = fraction + (2**of.fraction_bits if exponent else 0)
    value = significand * Fraction(2) ** (max(exponent, 1) - of.bias - of.fraction_bits)
    return -value if negative else value


def add(numbers: Sequence[Number]) -> Number:
    """Return the sum of the contributions of all workers to one element (section 8.3)."""
    if Special.NOT_SUMMED in numbers:
        return Special.NOT_SUMMED
    infinities = {Special.PLUS_INFINITY, Special.MINUS_INFINITY} & set(numbers)
    if Special.NAN in numbers or len(infinities) == 2:
        return Special.NAN
    if infinities:
        return infinities.pop()
    if all(number is Special.NEGATIVE_ZERO for number in numbers):
        return Special.NEGATIVE_ZERO
    return sum((x for x in numbers if isinstance(x, Fraction)), Fraction(0))


def bits_of_number(number: Number, to: Format, scale: int = 0) -> int:
    """Return the bits of a number times 2**-scale, rounded once."""
    if number is Special.NOT_SUMMED:
        return 2 * to.sign - 1
    if number is Special.NAN:
        return to.nan
    if number is Special.PLUS_INFINITY:
        return to.infinity
    if number is Special.MINUS_INFINITY:
        return to.infinity | to.sign
    if number is Special.NEGATIVE_ZERO:
        return to.sign
    assert isinstance(number, Fraction)
    bits = round_to_bits(number.numerator, number.denominator << scale, to)
    return bits | to.sign if number < 0 else bits


def extreme(bits: Sequence[int], of: Format, *, greatest: bool) -> int:
    """Return the bits of the greatest or least number; NaN wins, -0 is less than +0 (8.4)."""
    if any(number_of_bits(x, of) is Special.NAN for x in bits):
        return of.nan

    def order(x: int) -> int:
        magnitude = x & (of.sign - 1)
        return -1 - magnitude if x & of.sign else magnitude

    return max(bits, key=order) if greatest else min(bits, key=order)


# The integers of section 8.6 that are not sums, above -2**(w - 1).
_RESERVED = (
    Special.NOT_SUMMED,
    Special.NEGATIVE_ZERO,
    Special.NAN,
    Special.PLUS_INFINITY,
    Special.MINUS_INFINITY,
)


def unit_of_partial(exponent: int, of: Format, width: int) -> Fraction:
    """Return what 1 stands for in a partial sum of `width` bits at an agreed exponent."""
    return Fraction(2) ** (exponent - of.bias - (width - 8))


def number_of_partial(integer: int, exponent: int, of: Format, width: int) -> Number:
    """Return the number that a partial sum stands for."""
    above = integer + 2 ** (width - 1)
    if above < len(_RESERVED):
        return _RESERVED[above]
    return integer * unit_of_partial(exponent, of, width)


def partial_of_number(number: Number, exponent: int, of: Format, width: int) -> int:
    """Return the partial sum of a number; where it does not fit, that of a block not summed."""
    lowest = -(2 ** (width - 1))
    if isinstance(number, Special):
        return lowest + _RESERVED.index(number)
    integer = number / unit_of_partial(exponent, of, width)
    if integer.denominator != 1 or not lowest + len(_RESERVED) <= integer < -lowest:
        return lowest
    return integer.numerator
