"""The Internet checksum (RFC 1071) as expressions.

Sums of 16-bit words may be taken in either byte order (section 2(B)), so words are as on the bus:
the first octet in the low bits.
"""

from collections.abc import Sequence

from amaranth.hdl import Value

__all__ = ["fold", "tree_sum", "words_of"]


def words_of(value: Value) -> list[Value]:
    """Return `value` as 16-bit words."""
    return [value[16 * n : 16 * n + 16] for n in range(len(value) // 16)]


def tree_sum(values: Sequence[Value]) -> Value:
    """Return the sum as a balanced tree, whose depth is logarithmic."""
    terms = list(values)
    while len(terms) > 1:
        pairs = [terms[n] + terms[n + 1] for n in range(0, len(terms) - 1, 2)]
        terms = pairs + ([terms[-1]] if len(terms) % 2 else [])
    return terms[0]


def fold(value: Value) -> Value:
    """Return `value` with its carries added in once: below 2**17 if `value` is below 2**32.

    Folding that again, which cannot carry, gives the one's complement sum.
    """
    if len(value) <= 16:
        return value
    return value[:16] + value[16:]
