"""The UDP payload of an Afflux packet: header, look-ahead words, blocks.

Offsets, sizes and order come from `afflux_hdl.contract.wire`. A packet lives in a `PacketBuffer`
for the life of its slot or socket, with numpy views made once, because making them costs more than
filling them.
"""

import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afflux_hdl.contract import wire

__all__ = ["HEADER", "Header", "PacketBuffer", "datagram_bytes"]

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}

HEADER = struct.Struct("<" + "".join(_CODES[field.size] for field in wire.FIELDS))
"""Packs and unpacks the 22 header bytes, in wire order."""


class Header(NamedTuple):
    """The fields of the Afflux header, in wire order."""

    version_type: int
    opcode_dtype: int
    job: int
    worker: int
    slot: int
    present: int
    round: int
    key: int
    operation: int

    @property
    def version(self) -> int:
        """Protocol version."""
        return self.version_type >> 4

    @property
    def type(self) -> int:
        """Packet type, a `wire.Type` if it is a known one."""
        return self.version_type & 15


if Header._fields != tuple(field.name for field in wire.FIELDS):
    raise ImportError(f"Header lists {Header._fields}, the contract {wire.FIELDS}")


def datagram_bytes(blocks: int) -> int:
    """Bytes of the UDP payload of a packet with `blocks` blocks."""
    return wire.UDP_PAYLOAD_MIN + blocks * wire.BLOCK_BYTES


# In front of the header, so that words and blocks are aligned in memory.
_PAD = -wire.HEADER_BYTES % 8


class PacketBuffer:
    """Room for one packet.

    Attributes:
        datagram: All of the UDP payload's room, and one byte more, so that a datagram that is too
            long shows.
        words: Look-ahead words, (16,) uint32.
        blocks: Blocks in the packet's order, (lanes, 64) int32.
    """

    __slots__ = ("blocks", "datagram", "words")

    def __init__(self, lanes: int = wire.LANES_MAX) -> None:
        words_at = _PAD + wire.HEADER_BYTES
        blocks_at = words_at + wire.LOOKAHEAD_BYTES
        end = blocks_at + lanes * wire.BLOCK_BYTES
        storage: NDArray[np.uint8] = np.zeros(end + 1, np.uint8)
        self.datagram = memoryview(storage.data)[_PAD:]
        self.words: NDArray[np.uint32] = storage[words_at:blocks_at].view("<u4")
        self.blocks: NDArray[np.int32] = (
            storage[blocks_at:end].view("<i4").reshape(lanes, wire.BLOCK_ELEMENTS)
        )
        self.words.fill(wire.ABSENT)
