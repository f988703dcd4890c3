"""The order of octets: as on the wire, with the first octet in the low bits, or reversed."""

from amaranth.hdl import Cat, Value

__all__ = ["reversed_octets"]


def reversed_octets(value: Value) -> Value:
    """Return `value`, which has whole octets, with its octets in reverse."""
    return Cat(value[8 * n : 8 * n + 8] for n in reversed(range(len(value) // 8)))
