"""The packet layout: every number on which the two ends of a wire must agree.

This is the only place where the layout is written. The engine's Amaranth layouts, the numpy views
of the drivers and the tables in `docs/protocol.md` derive from it, or a test proves that they
agree. Plain Python: it imports neither amaranth nor torch nor numpy.

All Afflux fields are little-endian, so that hosts copy nothing; Ethernet, IPv4 and UDP are
big-endian, as their standards require.
"""

from dataclasses import dataclass
from enum import IntEnum

__all__ = [
    "ABSENT",
    "AFFLUX_OFFSET",
    "BLOCK_BYTES",
    "BLOCK_ELEMENTS",
    "EVERYONE",
    "FIELDS",
    "FRAME_BYTES_MAX",
    "FRAME_BYTES_MIN",
    "HEADER_BYTES",
    "LANES_MAX",
    "LONGEST_BLOCK_BYTES",
    "LOOKAHEAD_BYTES",
    "LOOKAHEAD_OFFSET",
    "PAYLOAD_OFFSET",
    "PORT",
    "ROWS_MAX",
    "SEALED_CHECKSUM",
    "SEAL_BYTES",
    "UDP_PAYLOAD_MIN",
    "VERSION",
    "WORKERS_MAX",
    "Dtype",
    "Field",
    "NumberOpcode",
    "Opcode",
    "Refusal",
    "Type",
    "datagram_bytes",
    "frame_bytes",
    "lanes_for_mtu",
]

VERSION = 2
"""Protocol version, the upper nibble of the first Afflux byte."""

PORT = 4700
"""Default UDP port of an aggregator, and TCP port of its control channel."""


class Type(IntEnum):
    """Packet type, the lower nibble of the first Afflux byte."""

    DATA = 0
    """Worker to aggregator: one worker's contribution to one round of one slot."""
    PROBE = 1
    """Worker to aggregator: asks for the result of a round, or which workers are missing."""
    JOIN = 2
    """Worker to aggregator: makes the sender's address known. The same in every version."""
    RESULT = 8
    """Aggregator to worker: the sums and look-ahead words of a complete round."""
    CONFLICT = 9
    """A result whose contributions disagreed on operation, opcode or dtype: not to be used.

    From a child to its parent: a contribution of that kind.
    """
    MISSING = 10
    """Aggregator to worker: the probed round is not complete; names the workers that are in it."""
    JOINED = 11
    """Aggregator to worker: the address is known; gives the job's parameters."""
    REFUSED = 12
    """Aggregator to worker: the join was refused; gives the cause."""


class Opcode(IntEnum):
    """The operation of a lane on an element of a block. It is always UMIN for look-ahead words."""

    SUM = 0
    """Addition modulo 2**32. Signed overflow is counted, never saturated."""
    MAX = 1
    """Signed maximum."""
    MIN = 2
    """Signed minimum."""
    UMIN = 3
    """Unsigned minimum."""


class NumberOpcode(IntEnum):
    """Opcodes of numbers of the header's dtype (docs/protocol.md, section 8.2)."""

    MAX = 4
    MIN = 5
    SUM = 8
    """The sum, times 2**-k, rounded once; k, 0 to 6, is added to the opcode."""


class Dtype(IntEnum):
    """The element type that the workers encode. The engine only compares and returns it."""

    INT32 = 0
    FLOAT32 = 1
    FLOAT16 = 2
    BFLOAT16 = 3


class Refusal(IntEnum):
    """Cause in the first word of a REFUSED packet."""

    VERSION = 1
    JOB = 2
    KEY = 3
    WORKER = 4
    ADDRESS = 5


@dataclass(frozen=True)
class Field:
    """One field of the Afflux header.

    Attributes:
        name: Name used by code and documents alike.
        offset: Bytes from the start of the Afflux header to the field.
        size: Bytes of the field.
        meaning: One line for the reference table.
    """

    name: str
    offset: int
    size: int
    meaning: str

    @property
    def frame_offset(self) -> int:
        """Offset in bytes from the start of the Ethernet frame."""
        return AFFLUX_OFFSET + self.offset


ETHERNET_BYTES = 14
IPV4_BYTES = 20
UDP_BYTES = 8
AFFLUX_OFFSET = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES
"""Bytes from the start of the frame to the Afflux header."""

_LAYOUT = (
    ("version_type", 1, "protocol version << 4 | packet type"),
    ("opcode_dtype", 1, "opcode << 4 | dtype"),
    ("job", 1, "job number on this aggregator"),
    ("worker", 1, "rank of the worker within the job, in both directions"),
    ("slot", 2, "slot number within the job's range"),
    ("present", 2, "bit f set: a block for lane f follows"),
    ("round", 4, "round of this slot, serial arithmetic"),
    ("key", 8, "secret of the job run"),
    ("operation", 2, "number of the collective within the job run, modulo 2**16"),
)


def _fields() -> tuple[Field, ...]:
    fields, offset = [], 0
    for name, size, meaning in _LAYOUT:
        fields.append(Field(name, offset, size, meaning))
        offset += size
    return tuple(fields)


FIELDS = _fields()
"""The Afflux header, in wire order."""

HEADER_BYTES = sum(field.size for field in FIELDS)
LOOKAHEAD_OFFSET = AFFLUX_OFFSET + HEADER_BYTES
"""Bytes from the start of the frame to the look-ahead words: one beat of a 512-bit bus."""

LANES_MAX = 16
"""Lanes of a slot, look-ahead words of a packet, bits of the present field."""

LOOKAHEAD_BYTES = 4 * LANES_MAX
PAYLOAD_OFFSET = LOOKAHEAD_OFFSET + LOOKAHEAD_BYTES
"""Bytes from the start of the frame to the first block."""

BLOCK_ELEMENTS = 64
"""Elements of a block. It is the same everywhere: exponents, and so bits, depend on it."""

BLOCK_BYTES = 4 * BLOCK_ELEMENTS
LONGEST_BLOCK_BYTES = 2 * BLOCK_BYTES
"""Bytes of a block of partial sums, at most (docs/protocol.md, section 8.6)."""

WORKERS_MAX = 64
"""Workers of a job: bits of the seen bitmap, words of the fingerprint block."""

ABSENT = 0xFFFF_FFFF
"""Look-ahead word of a lane in which a worker has no more blocks."""

EVERYONE = 255
"""Worker number in a result that goes to a multicast group."""

ROWS_MAX = (1 << 24) - 1
"""Maximum of rows in a column. Row 2**24 - 1 itself would look like ABSENT."""

SEAL_BYTES = 4
"""Bytes of the seal behind the last block of a packet that has one: two zeros, and the complement
that makes the UDP checksum right. Gateware ends all of its packets with a seal."""

SEALED_CHECKSUM = 0xFFFF
"""UDP checksum of a packet with a seal: zero in one's complement, and not the 0 that means none."""

FRAME_BYTES_MIN = PAYLOAD_OFFSET
FRAME_BYTES_MAX = PAYLOAD_OFFSET + LANES_MAX * BLOCK_BYTES
UDP_PAYLOAD_MIN = HEADER_BYTES + LOOKAHEAD_BYTES


def frame_bytes(blocks: int) -> int:
    """Return the bytes of an Ethernet frame with `blocks` blocks, without frame check sequence.

    Raises:
        ValueError: If no frame carries so many.
    """
    if not 0 <= blocks <= LANES_MAX:
        raise ValueError(f"a frame carries 0 to {LANES_MAX} blocks, not {blocks}")
    return PAYLOAD_OFFSET + blocks * BLOCK_BYTES


def datagram_bytes(blocks: int) -> int:
    """Return the bytes of the UDP payload of a packet that carries `blocks` blocks."""
    return frame_bytes(blocks) - AFFLUX_OFFSET


LONGEST_DATAGRAM_BYTES = (
    PAYLOAD_OFFSET + LANES_MAX * LONGEST_BLOCK_BYTES + SEAL_BYTES - AFFLUX_OFFSET
)
"""Bytes of the UDP payload of the longest packet: partial sums in all lanes, and a seal."""


def lanes_for_mtu(mtu: int) -> int:
    """Return for how many lanes a full packet fits an IPv4 MTU of `mtu` bytes, with a seal.

    Raises:
        ValueError: If not even one block fits.
    """
    lanes = (mtu + ETHERNET_BYTES - PAYLOAD_OFFSET - SEAL_BYTES) // BLOCK_BYTES
    if lanes < 1:
        raise ValueError(f"an MTU of {mtu} bytes holds no packet with a block; 374 is the least")
    return min(lanes, LANES_MAX)


def lanes_of_partial_sums(lanes: int) -> int:
    """Return for how many lanes a full packet of partial sums is as long as one of numbers.

    One of one lane is longer.
    """
    return max(1, lanes * BLOCK_BYTES // LONGEST_BLOCK_BYTES)
