"""Frames as a capture in libpcap's format, which Wireshark, tcpdump and scapy read."""

import struct
from collections.abc import Sequence

__all__ = ["capture"]

_MAGIC_MICROSECONDS = 0xA1B2C3D4
_VERSION = (2, 4)
_ETHERNET = 1
_LONGEST = 65535


def capture(frames: Sequence[bytes]) -> bytes:
    """Return the capture of these frames, a millisecond apart."""
    parts = [struct.pack("<IHHiIII", _MAGIC_MICROSECONDS, *_VERSION, 0, 0, _LONGEST, _ETHERNET)]
    for number, frame in enumerate(frames):
        seconds, milliseconds = divmod(number, 1000)
        parts.append(
            struct.pack("<IIII", seconds, 1000 * milliseconds, len(frame), len(frame)) + frame
        )
    return b"".join(parts)
