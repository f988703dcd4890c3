"""Damage to a frame by a network, a bug or an enemy: bits flipped, too short, too long, or noise.

Every source of random frames draws these here; how often and how much is its own.
"""

import random
from collections.abc import Callable, Sequence

__all__ = ["HEADERS_BYTES", "cut", "extended", "flip_bits", "with_zero_udp_checksum"]

HEADERS_BYTES = 64
"""The part up to the header of Afflux: where a wrong bit matters most."""


def flip_bits(
    choose: random.Random,
    frame: bytearray,
    counts: Sequence[int],
    reach: Callable[[], int] | None = None,
) -> None:
    """Flip bits of a frame in place.

    Args:
        choose: Draws everything.
        frame: The frame.
        counts: Of which one is drawn: how many bits.
        reach: Gives, for each bit, how many bytes from the start it may be in; if None, half of
            the bits are in the headers and half anywhere.
    """
    for _ in range(choose.choice(counts)):
        bytes_ = reach() if reach else choose.choice((HEADERS_BYTES, len(frame)))
        frame[choose.randrange(bytes_)] ^= 1 << choose.randrange(8)


def cut(choose: random.Random, frame: bytes, least: int = 1) -> bytes:
    """Return the beginning of a frame, at least so many bytes of it, but not all."""
    return frame[: choose.randrange(least, len(frame))]


def extended(choose: random.Random, frame: bytes, more: int) -> bytes:
    """Return a frame with so many bytes behind its end that its headers know nothing of."""
    return frame + choose.randbytes(more)


def with_zero_udp_checksum(frame: bytearray) -> None:
    """Set the UDP checksum to 0 in place: it is not verified then."""
    frame[40:42] = b"\0\0"
