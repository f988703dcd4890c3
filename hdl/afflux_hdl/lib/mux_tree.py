"""Select one of many values by its number, as a tree of multiplexers."""

from collections.abc import Sequence

from amaranth.hdl import Const, Mux, Value

__all__ = ["select"]


def select(values: Sequence[Value | int], number: Value) -> Value:
    """Return value `number` of `values`, or 0 without one: two to one at each bit.

    A `Switch` becomes a comparison for each value; this is only as deep as `number` is wide.
    """
    found = [Value.cast(value) for value in values]
    for n in range(len(number)):
        if len(found) % 2:
            found.append(Const(0, 1))
        found = [
            Mux(number[n], high, low) for low, high in zip(found[::2], found[1::2], strict=True)
        ]
        if not found:
            break
    return found[0] if found else Const(0, 1)
