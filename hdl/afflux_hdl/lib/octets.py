"""Numbers between wire order, the first octet in the low bits, and their own."""

from amaranth.hdl import Cat, Value

__all__ = ["reversed_octets"]


def reversed_octets(value: Value) -> Value:
    """`value`, whole octets, with its octets in the opposite order."""
    return Cat(value[8 * n : 8 * n + 8] for n in reversed(range(len(value) // 8)))
