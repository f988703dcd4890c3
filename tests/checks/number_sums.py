"""Whether a block is the sum of others, or their greatest or least numbers: protocol, section 8.

Written from the page, without our own code: exact fractions, and of a rounded number only that no
neighbour is nearer.
"""

import struct
from collections.abc import Sequence
from fractions import Fraction

__all__ = ["check_numbers"]

# Bits of exponent and fraction, by dtype.
_FORMATS = {1: (8, 23), 2: (5, 10), 3: (8, 7)}

# Numbers' dtype and w, by the dtype of partial sums.
_PARTIAL = {9: (1, 40), 12: (1, 48), 13: (1, 64), 10: (2, 32), 11: (3, 32)}

# Of partial sums, above -2**(w - 1): not summed, -0, NaN, both infinities.
_SPECIALS = ("none", "-0", "nan", "inf", "-inf")

_Value = Fraction | str


def _value(bits: int, dtype: int) -> _Value:
    exponent_bits, fraction_bits = _FORMATS[dtype]
    sign = bits >> (exponent_bits + fraction_bits)
    exponent = bits >> fraction_bits & (1 << exponent_bits) - 1
    fraction = bits & (1 << fraction_bits) - 1
    if exponent == (1 << exponent_bits) - 1:
        return "nan" if fraction else ("-inf" if sign else "inf")
    if not exponent and not fraction:
        return "-0" if sign else Fraction(0)
    hidden = 1 << fraction_bits if exponent else 0
    bias = (1 << (exponent_bits - 1)) - 1
    value = (fraction + hidden) * Fraction(2) ** (max(exponent, 1) - bias - fraction_bits)
    return -value if sign else value


def _numbers(words: Sequence[int], dtype: int) -> list[int]:
    octets = struct.pack(f"<{len(words)}i", *words)
    code, size = ("I", 4) if dtype == 1 else ("H", 2)
    return list(struct.unpack(f"<{len(octets) // size}{code}", octets))


def _partial_sums(words: Sequence[int], dtype: int, exponent: int) -> list[_Value]:
    of, width = _PARTIAL[dtype]
    octets = struct.pack(f"<{len(words)}i", *words)
    low, high = (4, width // 8 - 4) if of == 1 else (2, 2)
    bias = (1 << (_FORMATS[of][0] - 1)) - 1
    values: list[_Value] = []
    for i in range(256 // low):
        upper = octets[256 + high * i : 256 + high * (i + 1)]
        integer = int.from_bytes(octets[low * i : low * (i + 1)] + upper, "little", signed=True)
        special = integer + 2 ** (width - 1)
        if special < len(_SPECIALS):
            values.append(_SPECIALS[special])
        else:
            values.append(integer * Fraction(2) ** (exponent - bias - (width - 8)))
    return values


def _sum(values: Sequence[_Value], workers: int) -> _Value:
    kinds = set(values)
    if "nan" in kinds or {"inf", "-inf"} <= kinds:
        return "nan"
    for infinity in ("inf", "-inf"):
        if infinity in kinds:
            return infinity
    if kinds == {"-0"} and len(values) == workers:
        return "-0"
    return sum((x for x in values if isinstance(x, Fraction)), Fraction(0))


def _is_rounded(bits: int, exact: _Value, dtype: int) -> bool:
    """Return whether a number is the one nearest to an exact sum, or the special value."""
    exponent_bits, fraction_bits = _FORMATS[dtype]
    sign = 1 << (exponent_bits + fraction_bits)
    infinity = ((1 << exponent_bits) - 1) << fraction_bits
    if not isinstance(exact, Fraction):
        quiet = infinity | 1 << (fraction_bits - 1)
        return bits == {"nan": quiet, "inf": infinity, "-inf": infinity | sign, "-0": sign}[exact]
    magnitude = bits & (sign - 1)
    if magnitude > infinity or bool(bits & sign) != (exact < 0):
        return False

    def size(of: int) -> Fraction:
        """Return the value of a magnitude; infinity counts as the number that would follow."""
        if of == infinity:
            return 2 * size(infinity - 1) - size(infinity - 2)
        value = _value(of, dtype)
        assert isinstance(value, Fraction)
        return value

    off = abs(size(magnitude) - abs(exact))
    if magnitude == infinity:
        off = max(size(infinity) - abs(exact), Fraction(0))
    for near in (magnitude - 1, magnitude + 1):
        if not 0 <= near <= infinity:
            continue
        other = abs(size(near) - abs(exact))
        if other < off or (other == off and magnitude % 2):
            return False
    return True


def check_numbers(
    opcode: int,
    exponent: int,
    blocks: Sequence[Sequence[int]],
    workers: int,
    result: tuple[int, Sequence[int]],
    dtype: int,
) -> None:
    """Check a block of a result, or of partial sums.

    Args:
        opcode: 4 or more.
        exponent: E of the lane.
        blocks: What the workers have sent, as words, all of numbers.
        workers: N.
        result: dtype and words of the block that came of it.
        dtype: Of the numbers.

    Raises:
        AssertionError: It is not their sum, or not their greatest or least numbers.
    """
    sent = [_numbers(block, dtype) for block in blocks]
    to, words = result
    if opcode < 8:
        columns = zip(*sent, _numbers(words, dtype), strict=True)
        assert all(_is_extreme(opcode, column, dtype) for column in columns), "not the extreme"
        return
    exact = [
        _sum([_value(x, dtype) for x in column], workers) for column in zip(*sent, strict=True)
    ]
    if to in _PARTIAL:
        assert _partial_sums(words, to, exponent) == exact, "other partial sums"
        return
    if set(words) == {-1}:
        return
    scaled = [x / 2 ** (opcode - 8) if isinstance(x, Fraction) else x for x in exact]
    pairs = zip(_numbers(words, to), scaled, strict=True)
    assert all(_is_rounded(bits, x, to) for bits, x in pairs), "not rounded once"


def _is_extreme(opcode: int, column: Sequence[int], dtype: int) -> bool:
    """Return whether the last is the greatest (opcode 4) or least (5) of the others."""
    *given, result = column
    exponent_bits, fraction_bits = _FORMATS[dtype]
    sign = 1 << (exponent_bits + fraction_bits)
    if any(_value(x, dtype) == "nan" for x in given):
        return _is_rounded(result, "nan", dtype)
    # Of one sign the bits are in order; all ones below zero.
    ordered = sorted(given, key=lambda x: sign - 1 - (x ^ sign) if x & sign else sign + x)
    return result == ordered[-1 if opcode == 4 else 0]
