"""The Afflux packet as a scapy layer, typed from docs/protocol.md section 2.

Frames in the tests of the engine are built and read by scapy, not by our own code: a mistake that
the contract and the golden model shared would show here.
"""

import struct
from collections.abc import Iterable, Mapping
from typing import ClassVar

from scapy.fields import (
    BitEnumField,
    BitField,
    ByteField,
    FieldListField,
    LEIntField,
    LELongField,
    LEShortField,
    XLEIntField,
    XLEShortField,
)
from scapy.layers.inet import UDP
from scapy.packet import Packet, bind_layers

__all__ = ["ABSENT", "ENGINE_PORT", "TYPES", "Afflux", "block_bytes", "block_size", "blocks_of"]

ENGINE_PORT = 4700
ABSENT = 0xFFFFFFFF
TYPES = {
    0: "DATA",
    1: "PROBE",
    2: "JOIN",
    8: "RESULT",
    9: "CONFLICT",
    10: "MISSING",
    11: "JOINED",
    12: "REFUSED",
}
BLOCK = struct.Struct("<64I")
# Bytes of a block of partial sums, by dtype; of sums of numbers, whose opcodes are 8 and more.
PARTIAL_BYTES = {9: 320, 12: 384, 10: 512, 11: 512, 13: 512}
SEAL_BYTES = 4


class Afflux(Packet):
    """Header and look-ahead words; the blocks are the payload."""

    name = "Afflux"
    fields_desc: ClassVar = [
        BitField("version", 2, 4),
        BitEnumField("type", 0, 4, TYPES),
        BitField("opcode", 0, 4),
        BitField("dtype", 0, 4),
        ByteField("job", 0),
        ByteField("worker", 0),
        LEShortField("slot", 0),
        XLEShortField("present", 0),
        LEIntField("round", 0),
        LELongField("key", 0),
        LEShortField("operation", 0),
        FieldListField("words", [ABSENT] * 16, XLEIntField("", 0), count_from=lambda _: 16),
    ]


bind_layers(UDP, Afflux, dport=ENGINE_PORT)
bind_layers(UDP, Afflux, sport=ENGINE_PORT)


def block_bytes(blocks: Mapping[int, Iterable[int]]) -> bytes:
    """Return the blocks of a packet as they follow its words, lowest lane first."""
    return b"".join(
        BLOCK.pack(*(element % 2**32 for element in blocks[lane])) for lane in sorted(blocks)
    )


def block_size(packet: Afflux) -> int:
    """Return the bytes of each block of a packet."""
    return PARTIAL_BYTES.get(packet.dtype, BLOCK.size) if packet.opcode >= 8 else BLOCK.size


def blocks_of(packet: Afflux) -> dict[int, list[int]]:
    """Return the blocks of a packet by lane, as signed words. It may have a seal."""
    payload, size = bytes(packet.payload), block_size(packet)
    lanes = [lane for lane in range(16) if packet.present >> lane & 1]
    beyond = len(payload) - size * len(lanes)
    assert beyond in (0, SEAL_BYTES), "blocks and present bitmap disagree"
    return {
        lane: list(struct.unpack_from(f"<{size // 4}i", payload, size * place))
        for place, lane in enumerate(lanes)
    }
