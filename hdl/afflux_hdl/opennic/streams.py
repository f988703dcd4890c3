"""Streams at the edge of the box, as the OpenNIC shell has them."""

from amaranth.lib import data

__all__ = ["BUS_BITS", "FIRST_PORT_BIT", "BoxBeat"]

BUS_BITS = 512
"""Width of every packet stream of the shell."""

FIRST_PORT_BIT = 6
"""Of `src` and `dst`, the bit that stands for network port 0; bits 0 to 3 stand for functions."""

BoxBeat = data.StructLayout(
    {"data": BUS_BITS, "keep": BUS_BITS // 8, "last": 1, "size": 16, "src": 16, "dst": 16}
)
"""One beat at the edge of the box.

Members:
    data: Bytes, the first in the low bits.
    keep: One bit for each byte that belongs to the frame: all, except in the last beat.
    last: The frame ends here.
    size: Bytes of the whole frame; the same in all its beats, from the first on.
    src, dst: Where the frame comes from and where it goes, one bit for each function and port.
"""
