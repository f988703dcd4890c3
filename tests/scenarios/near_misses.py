"""Frames that miss by little: each would pass if one comparison of a header were too short.

Random frames miss by much, or in one bit of any kind; these miss in every bit of every header, with
right checksums, in swapped octets, and in lengths that agree with one another.
"""

from collections.abc import Iterator
from itertools import product

from tests.scenarios.corruption import HEADERS_BYTES
from tests.scenarios.packing import repaired

__all__ = ["near_misses"]

IP_CHECKSUM, UDP_CHECKSUM = range(24, 26), range(40, 42)

VALUES = {14: "IPv4 version and length", 23: "protocol", 42: "version and type", 43: "opcode"}
"""Octets of which every value is tried, and what they are."""

SHIFTS = [sign << bit for bit in range(10) for sign in (1, -1)]
"""By how many bytes lengths are wrong: odd, even, and so many as a block has."""

FIELDS = (
    *((0, "destination MAC"), (6, "source MAC"), (12, "EtherType"), (14, "IPv4 version")),
    *((15, "service"), (16, "IPv4 length"), (18, "identification"), (20, "fragment")),
    *((22, "time to live"), (23, "protocol"), (24, "IPv4 checksum"), (26, "source address")),
    *((30, "destination address"), (34, "source port"), (36, "destination port")),
    *((38, "UDP length"), (40, "UDP checksum"), (42, "version and type"), (43, "opcode")),
    *((44, "job"), (45, "worker"), (46, "slot"), (48, "present"), (50, "round"), (54, "key")),
    (62, "operation"),
)


def near_misses(frame: bytes, *, thorough: bool = True) -> Iterator[tuple[str, bytes]]:
    """Return frames that differ from a right one a little, each with what is different.

    Args:
        frame: A frame of Afflux, all of it right.
        thorough: Those with wrong checksums too, and every value of the octets in `VALUES`.
    """
    for at, bit in product(range(HEADERS_BYTES), range(8)):
        changed = frame[:at] + bytes([frame[at] ^ 1 << bit]) + frame[at + 1 :]
        where = f"{_field(at)}, byte {at}, bit {bit}"
        if at not in (*IP_CHECKSUM, *UDP_CHECKSUM):
            yield where, repaired(changed)
        if thorough:
            yield f"{where}, checksums as they were", changed
    for at in range(HEADERS_BYTES - 1):
        swapped = frame[:at] + frame[at + 1 : at + 2] + frame[at : at + 1] + frame[at + 2 :]
        if swapped != frame:
            yield f"{_field(at)}, bytes {at} and {at + 1} swapped", repaired(swapped)
    for at, what in VALUES.items() if thorough else ():
        for value in range(256):
            if value != frame[at]:
                changed = frame[:at] + bytes([value]) + frame[at + 1 :]
                yield f"{what}, value {value}", repaired(changed)
    for shift in SHIFTS:
        for in_frame, in_ip, in_udp in product((0, 1), repeat=3):
            wrong = [
                name
                for name, chosen in (("frame", in_frame), ("IPv4", in_ip), ("UDP", in_udp))
                if chosen
            ]
            if wrong and len(frame) + shift >= HEADERS_BYTES:
                resized = bytearray(frame[: len(frame) + shift * in_frame])
                resized += bytes(max(0, shift * in_frame))
                for at, chosen in ((16, in_ip), (38, in_udp)):
                    length = int.from_bytes(frame[at : at + 2], "big") + shift * chosen
                    resized[at : at + 2] = (length % 2**16).to_bytes(2, "big")
                yield f"lengths of {', '.join(wrong)} off by {shift}", repaired(bytes(resized))


def _field(at: int) -> str:
    return max((first, name) for first, name in FIELDS if first <= at)[1]
