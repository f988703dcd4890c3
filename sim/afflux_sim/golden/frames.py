"""Frames of the wire protocol, typed from `docs/protocol.md` sections 2 and 4 alone.

The golden model must not share a mistake with the engine, so it does not import the contract that
the engine is built from; a test compares the two. All numbers here are what the document states.
"""

import ipaddress
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

__all__ = [
    "ABSENT",
    "ABSENT_WORDS",
    "BLOCK_BYTES",
    "CONFLICT",
    "COUNTERS",
    "DATA",
    "DTYPES",
    "ELEMENTS",
    "EVERYONE",
    "HEADER",
    "HEADER_AT",
    "JOIN",
    "JOINED",
    "LANES",
    "MAX",
    "MIN",
    "MISSING",
    "NUMBER_DTYPES",
    "NUMBER_MAX",
    "NUMBER_MIN",
    "NUMBER_SUM",
    "PARTIAL_DTYPES",
    "PROBE",
    "REFUSED",
    "RESULT",
    "SEAL_BYTES",
    "SUM",
    "UMIN",
    "VERSION",
    "Block",
    "Endpoint",
    "GroupAddress",
    "Packet",
    "as_block",
    "base_dtype",
    "block_bytes",
    "build_frame",
    "build_sealed_frame",
    "is_for",
    "look_ahead",
    "ones_complement_sum",
    "parse_header",
    "parse_packet",
    "parse_present",
    "partial_dtype",
    "source_of",
    "split_look_ahead",
    "udp_sum",
    "with_udp_checksum",
]

VERSION = 2

# Packet types.
DATA, PROBE, JOIN = 0, 1, 2
RESULT, CONFLICT, MISSING, JOINED, REFUSED = 8, 9, 10, 11, 12

# Opcodes.
SUM, MAX, MIN, UMIN = 0, 1, 2, 3

DTYPES = {"int32": 0, "float32": 1, "float16": 2, "bfloat16": 3}

# Section 8: opcodes, to the last of which the scale k is added; dtypes of
# numbers; dtypes of partial sums, with the dtype of the numbers and their width in bits.
NUMBER_MAX, NUMBER_MIN, NUMBER_SUM = 4, 5, 8
NUMBER_DTYPES = {1: "float32", 2: "float16", 3: "bfloat16"}
PARTIAL_DTYPES = {
    9: ("float32", 40),
    12: ("float32", 48),
    13: ("float32", 64),
    10: ("float16", 32),
    11: ("bfloat16", 32),
}

# In the worker byte of a result that goes to a group.
EVERYONE = 255

LANES = 16
ELEMENTS = 64
BLOCK_BYTES = 4 * ELEMENTS
HEADER_AT = 42
PRESENT_AT = 48
WORDS_AT = 64
BLOCKS_AT = 128
SEAL_BYTES = 4

ABSENT = 0xFFFFFFFF
ABSENT_WORDS = (ABSENT,) * LANES

# version_type, opcode_dtype, job, worker, slot, present, round, key, operation: 22 bytes.
HEADER = struct.Struct("<BBBBHHIQH")

COUNTERS = (
    "frames_in",
    "mac_error",
    "not_ours",
    "bad_ip",
    "bad_version",
    "bad_length",
    "bad_checksum",
    "bad_type",
    "bad_job",
    "bad_key",
    "bad_worker",
    "bad_address",
    "bad_slot",
    "bad_present",
    "joins",
    "accepted",
    "duplicates",
    "stale",
    "premature",
    "probes",
    "receive_overflow",
    "parent_results",
    "state_errors",
    "blocks_accepted",
    "rounds",
    "conflicts",
    "overflows",
    "replays",
    "replays_dropped",
    "replies_dropped",
    "frames_out",
    "bytes_in",
    "bytes_out",
    "results_dropped",
    "results_discarded",
    "refusals_dropped",
    "frames_discarded",
    "data_errors",
)

Block = npt.NDArray[np.int32]


def as_block(values: npt.ArrayLike) -> Block:
    """Return 64 elements as int32, read modulo 2**32; shorter input is padded with zeros."""
    given = np.asarray(values, dtype=np.int64)
    block = np.zeros(ELEMENTS, dtype=np.int64)
    block[: given.size] = given
    return block.astype(np.int32)


def base_dtype(opcode: int, dtype: int) -> int:
    """Return the dtype of the numbers whose partial sums have this dtype, or the dtype itself."""
    partial = opcode >= NUMBER_SUM and dtype in PARTIAL_DTYPES
    return DTYPES[PARTIAL_DTYPES[dtype][0]] if partial else dtype


def partial_dtype(name: str, bits: int) -> int:
    """Return the dtype of partial sums of numbers; `bits` is w of those of float32."""
    width = bits if name == "float32" else 32
    return {what: dtype for dtype, what in PARTIAL_DTYPES.items()}[name, width]


def block_bytes(opcode: int, dtype: int) -> int:
    """Return the bytes of a block in a packet of this opcode and dtype."""
    if opcode < NUMBER_SUM or dtype not in PARTIAL_DTYPES:
        return BLOCK_BYTES
    name, width = PARTIAL_DTYPES[dtype]
    return (64 if name == "float32" else 128) * width // 8


def look_ahead(row: int, exponent: int) -> int:
    """Return the look-ahead word of a block; exponent 0 where the encoding has none."""
    return row << 8 | (255 - exponent)


def split_look_ahead(word: int) -> tuple[int, int]:
    """Return row and exponent of a look-ahead word that is not absent."""
    return word >> 8, 255 - (word & 0xFF)


@dataclass(frozen=True)
class Endpoint:
    """MAC address, IPv4 address and UDP port of one end."""

    mac: bytes
    address: str
    port: int

    @property
    def packed_address(self) -> bytes:
        return ipaddress.IPv4Address(self.address).packed


@dataclass(frozen=True)
class GroupAddress:
    """IPv4 multicast address and UDP port that a job's results go to."""

    address: str
    port: int

    @property
    def endpoint(self) -> Endpoint:
        """Where a frame to the group goes (RFC 1112, section 6.4)."""
        low_23_bits = int(ipaddress.IPv4Address(self.address)) & 0x7FFFFF
        mac = bytes.fromhex("01005e") + low_23_bits.to_bytes(3, "big")
        return Endpoint(mac, self.address, self.port)

    @property
    def words(self) -> tuple[int, int]:
        """Address and port as a JOINED packet has them."""
        return int(ipaddress.IPv4Address(self.address)), self.port


@dataclass(frozen=True, eq=False)
class Packet:
    """Afflux header, look-ahead words and blocks; `present` is what `blocks` holds."""

    type: int
    opcode: int = 0
    dtype: int = 0
    job: int = 0
    worker: int = 0
    slot: int = 0
    round: int = 0
    key: int = 0
    operation: int = 0
    words: tuple[int, ...] = (0,) * LANES
    blocks: Mapping[int, Block] = field(default_factory=dict)
    version: int = VERSION

    @property
    def present(self) -> int:
        return sum(1 << lane for lane in self.blocks)

    def to_bytes(self) -> bytes:
        """Return the packet from its Afflux header on, as it is in a frame from byte 42."""
        header = HEADER.pack(
            self.version << 4 | self.type,
            self.opcode << 4 | self.dtype,
            self.job,
            self.worker,
            self.slot,
            self.present,
            self.round,
            self.key,
            self.operation,
        )
        words = struct.pack("<16I", *self.words)
        blocks = [self.blocks[lane].astype("<i4").tobytes() for lane in sorted(self.blocks)]
        return header + words + b"".join(blocks)


def parse_header(frame: bytes) -> Packet:
    """Read the Afflux header of a frame of at least 64 bytes, and nothing after it."""
    version_type, opcode_dtype, job, worker, slot, _, round_, key, operation = HEADER.unpack_from(
        frame, HEADER_AT
    )
    return Packet(
        type=version_type & 15,
        version=version_type >> 4,
        opcode=opcode_dtype >> 4,
        dtype=opcode_dtype & 15,
        job=job,
        worker=worker,
        slot=slot,
        round=round_,
        key=key,
        operation=operation,
    )


def parse_present(frame: bytes) -> int:
    """Return the bitmap `present` of a frame of at least 64 bytes."""
    (present,) = struct.unpack_from("<H", frame, PRESENT_AT)
    return int(present)


def parse_packet(frame: bytes) -> Packet:
    """Read the packet of a whole frame whose lengths are known to be right."""
    header = parse_header(frame)
    present = parse_present(frame)
    size = block_bytes(header.opcode, header.dtype)
    blocks = {}
    at = BLOCKS_AT
    for lane in range(LANES):
        if present >> lane & 1:
            blocks[lane] = np.frombuffer(frame, "<i4", size // 4, at).astype(np.int32)
            at += size
    words = struct.unpack_from("<16I", frame, WORDS_AT)
    return replace(header, words=words, blocks=blocks)


def ones_complement_sum(data: bytes) -> int:
    """Return the end-around-carry sum of big-endian 16-bit words (RFC 1071): 0xFFFF if right."""
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def udp_sum(frame: bytes) -> int:
    """Return the sum that a UDP receiver makes of a frame: 0xFFFF if nothing in it has changed."""
    udp_length = len(frame) - 34
    pseudo_header = frame[26:34] + struct.pack(">BBH", 0, 17, udp_length)
    return ones_complement_sum(pseudo_header + frame[34:])


def build_sealed_frame(source: Endpoint, destination: Endpoint, packet: Packet) -> bytes:
    """Return the Ethernet frame of `packet` as hardware sends it: with a seal.

    UDP checksum 0xFFFF; after the last block two bytes 0 and the complement.
    """
    frame = build_frame(source, destination, packet, checksum=0xFFFF, seal=bytes(SEAL_BYTES))
    return frame[:-2] + struct.pack(">H", udp_sum(frame) ^ 0xFFFF)


def build_frame(
    source: Endpoint,
    destination: Endpoint,
    packet: Packet,
    *,
    checksum: int = 0,
    seal: bytes = b"",
) -> bytes:
    """Return the Ethernet frame of `packet`, by default without UDP checksum and seal."""
    payload = packet.to_bytes() + seal
    udp_length = 8 + len(payload)
    ip = bytearray(struct.pack(">BBHHHBBH", 0x45, 0, 20 + udp_length, 0, 0x4000, 64, 17, 0))
    ip += source.packed_address + destination.packed_address
    ip[10:12] = struct.pack(">H", ones_complement_sum(bytes(ip)) ^ 0xFFFF)
    udp = struct.pack(">HHHH", source.port, destination.port, udp_length, checksum)
    return destination.mac + source.mac + b"\x08\x00" + bytes(ip) + udp + payload


def with_udp_checksum(frame: bytes) -> bytes:
    """Return the frame with its right UDP checksum, as a worker's host sends it (RFC 768)."""
    data = frame[26:34] + struct.pack(">BBH", 0, 17, len(frame) - 34) + frame[34:40] + frame[42:]
    right = ones_complement_sum(data) ^ 0xFFFF
    return frame[:40] + struct.pack(">H", right or 0xFFFF) + frame[42:]


def source_of(frame: bytes) -> Endpoint:
    """Return the source of a frame: MAC address, IPv4 address and UDP port."""
    (port,) = struct.unpack_from(">H", frame, 34)
    return Endpoint(frame[6:12], ".".join(map(str, frame[26:30])), port)


def is_for(endpoint: Endpoint, frame: bytes) -> bool:
    """Return whether a frame's destination is this endpoint."""
    return (
        frame[0:6] == endpoint.mac
        and frame[30:34] == endpoint.packed_address
        and frame[36:38] == struct.pack(">H", endpoint.port)
    )
