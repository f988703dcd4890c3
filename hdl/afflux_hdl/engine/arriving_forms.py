"""Forms of the blocks that arrive: the opcodes and dtypes that there are, and their lengths.

`docs/protocol.md`, sections 2 and 8.6.

Tested: `tests/sim/test_engine_tree.py`.
"""

from collections.abc import Sequence

from amaranth.hdl import Cat, Mux, Value
from amaranth.lib import data

from afflux_hdl.contract import wire
from afflux_hdl.engine.layouts import PartialDtype
from afflux_hdl.lib.ones_complement import tree_sum

__all__ = ["base_dtype", "is_one_of", "is_partial", "is_unknown", "units_of"]


def is_one_of(value: Value, choices: Sequence[int]) -> Value:
    """Return whether a value is one of these."""
    return Cat(value == choice for choice in choices).any()


def is_partial(header: data.View) -> Value:
    """Return whether a packet's blocks are partial sums, in a form that the engine takes."""
    return header.opcode[3] & is_one_of(header.dtype, [dtype.value for dtype in PartialDtype])


def units_of(header: data.View) -> Value:
    """Return the length of a packet's blocks in units of 256 bytes."""
    blocks = tree_sum(list(header.present))
    return Mux(is_partial(header), blocks << 1, blocks)


def is_unknown(header: data.View) -> Value:
    """Return whether the engine does not have an opcode, for its dtype."""
    beyond = header.opcode > wire.Opcode.UMIN
    has_sums = header.opcode[3] & ~header.opcode.all()
    has_others = is_one_of(header.opcode, (wire.NumberOpcode.MAX, wire.NumberOpcode.MIN))
    is_float = (header.dtype != 0) & (header.dtype < 4)
    return beyond & ~((has_sums | has_others) & is_float) & ~(has_sums & is_partial(header))


def base_dtype(frame: data.View) -> Value:
    """Return the dtype of the numbers of a frame: of partial sums the dtype of what they sum."""
    dtype = frame.header.dtype
    return Cat(dtype[:2], dtype[2:] & ~frame.partial.replicate(2))
