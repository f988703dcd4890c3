"""The checks of frames: at an aggregator section 5.2 down to `bad_type`; at a worker section 6."""

import struct
from collections.abc import Collection, Sequence

from afflux_sim.golden.frames import (
    HEADER_AT,
    NUMBER_DTYPES,
    NUMBER_SUM,
    SEAL_BYTES,
    UMIN,
    VERSION,
    Endpoint,
    Packet,
    block_bytes,
    is_for,
    ones_complement_sum,
    parse_header,
    parse_present,
    udp_sum,
)

__all__ = ["is_to_worker", "judge_frame", "knows_opcode", "same_address"]


def judge_frame(
    frame: bytes,
    endpoint: Endpoint,
    parent_ports: Sequence[int],
    *,
    lanes: int,
    partials: Collection[int],
) -> str | None:
    """Return the counter of a frame that is dropped for its headers or lengths, else None.

    Args:
        frame: From the destination MAC address on.
        endpoint: The engine's.
        parent_ports: The engine's ports towards parents.
        lanes: For how many lanes the engine was built.
        partials: Dtypes of the partial sums that it takes, whose blocks have other lengths.
    """
    if (
        len(frame) < 64
        or frame[0:6] != endpoint.mac
        or frame[12:14] != b"\x08\x00"
        or frame[14] >> 4 != 4
        or frame[23] != 17
        or frame[30:34] != endpoint.packed_address
        or frame[30:34] == bytes(4)
    ):
        return "not_ours"

    (flags_and_offset,) = struct.unpack_from(">H", frame, 20)
    if (
        frame[14] & 15 != 5
        or flags_and_offset & ~0x4000
        or frame[6] & 1
        or frame[26] == 0
        or frame[26] >= 224
        or ones_complement_sum(frame[14:34]) != 0xFFFF
    ):
        return "bad_ip"

    (ip_length,) = struct.unpack_from(">H", frame, 16)
    _, udp_port, udp_length, udp_checksum = struct.unpack_from(">HHHH", frame, 34)
    if udp_port != endpoint.port and udp_port not in parent_ports:
        return "not_ours"

    blocks = parse_present(frame).bit_count()
    header = parse_header(frame)
    size = block_bytes(header.opcode, header.dtype) if header.dtype in partials else 256
    if (
        len(frame) != 14 + ip_length
        or ip_length != 20 + udp_length
        or udp_length not in (94 + size * blocks, 98 + size * blocks)
        or blocks > lanes
    ):
        return "bad_length"

    if udp_checksum != 0 and udp_sum(frame) != 0xFFFF:
        return "bad_checksum"
    return None


def is_to_worker(frame: bytes, endpoints: Sequence[Endpoint], engine: Endpoint) -> bool:
    """Return whether a frame of the right length came from the engine to one of the endpoints.

    It has, or has not, a seal; and its UDP checksum is right, if it is not 0.
    """
    if len(frame) < HEADER_AT + 22:
        return False
    bare = 128 + 256 * parse_present(frame).bit_count()
    if len(frame) not in (bare, bare + SEAL_BYTES):
        return False
    if frame[40:42] != b"\0\0" and udp_sum(frame) != 0xFFFF:
        return False
    return (
        any(is_for(endpoint, frame) for endpoint in endpoints)
        and frame[26:30] == engine.packed_address
        and frame[34:36] == struct.pack(">H", engine.port)
        and frame[HEADER_AT] >> 4 == VERSION
    )


def knows_opcode(packet: Packet, *, partials: Collection[int]) -> bool:
    """Return whether an engine has the packet's opcode, for its dtype.

    Partial sums go up only: of what comes from a parent no dtype is one of them.
    """
    if packet.opcode <= UMIN:
        return True
    if packet.opcode in (6, 7, 15):
        return False
    partial = packet.opcode >= NUMBER_SUM and packet.dtype in partials
    return packet.dtype in NUMBER_DTYPES or partial


def same_address(source: Endpoint, known: Endpoint) -> bool:
    """Return whether a frame comes from where it should; routers change MAC addresses."""
    return (source.address, source.port) == (known.address, known.port)
