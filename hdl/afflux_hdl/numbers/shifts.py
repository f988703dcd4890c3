"""Steps of a shifter: each moves a number by 0 to 3 strides, which is a LUT of six inputs a bit.

A shifter for one wide number or two halves moves each half by a digit of its own. While there are
two numbers, no bit may come from the other half: so a step takes what its half may see, in which
the other half's bits are zeros then. Registers clear a copy for that at no cost in LUTs.
"""

from collections.abc import Sequence

from amaranth.hdl import Const, Mux, Value

__all__ = ["falls", "moved_down", "moved_up"]


def moved_down(number: Value, stride: int, digit: Value) -> Value:
    """Return a number of the same width, moved down by `digit` strides."""
    return _of_four([number[min(k * stride, len(number)) :] for k in range(4)], digit)


def moved_up(number: Value, stride: int, digit: Value) -> Value:
    """Return a number of the same width, moved up by `digit` strides."""
    return _of_four([number << k * stride for k in range(4)], digit)[: len(number)]


def falls(number: Value, stride: int, digit: Value) -> Value:
    """Return whether a bit that is set falls out at the low end when the number moves down."""
    result: Value = Const(0, 1)
    for k in range(3):
        result = result | (number[k * stride :][:stride].any() & (digit > k))
    return result


def _of_four(choices: Sequence[Value], digit: Value) -> Value:
    low, high = (Mux(digit[0], choices[n + 1], choices[n]) for n in (0, 2))
    return Mux(digit[1], high, low)
