"""Priority: the lowest of several bits that is set, as a tree."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Mux, Value, ValueLike

__all__ = ["lowest"]


def lowest(bits: Sequence[Value]) -> tuple[ValueLike, Value]:
    """Return whether any bit is set, and the number of the lowest: a tree, of small depth.

    There must be a power of two of them.
    """
    if len(bits) == 1:
        return bits[0], Const(0, 0)
    half = len(bits) // 2
    (low_any, low), (high_any, high) = lowest(bits[:half]), lowest(bits[half:])
    return low_any | high_any, Cat(Mux(low_any, low, high), ~low_any)
