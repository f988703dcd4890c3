"""How many bytes more a rank may send to save a hop, by what its links were measured to do."""

import socket
import struct
from collections.abc import Iterable

from afflux.group.settings.thread_count import link_mbit

__all__ = ["one_hop_bytes"]

_USUAL_MBIT = 10_000
_ENDS_US = 40.0
"""To send a message, and to wake the rank that receives it."""

_LEAST, _MOST = 16 << 10, 1 << 20
_MIN_RTT_AT = 148
"""Of `tcpi_min_rtt`, microseconds, in Linux's `struct tcp_info` (include/uapi/linux/tcp.h)."""


def one_hop_bytes(streams: Iterable[socket.socket], address: str) -> int:
    """Return the bytes that a link carries while a message is under way.

    The time is half of the longest of the shortest round trips that the kernel has seen, and what
    the ends take.

    Args:
        streams: To the other ranks.
        address: Of this host, whose port sends.
    """
    trips = [_round_trip_us(each) for each in streams]
    way_us = _ENDS_US + max(trips, default=0.0) / 2
    bytes_a_us = (link_mbit(address) or _USUAL_MBIT) / 8
    return int(min(max(way_us * bytes_a_us, _LEAST), _MOST))


def _round_trip_us(tcp: socket.socket) -> float:
    info = tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _MIN_RTT_AT + 4)
    if len(info) < _MIN_RTT_AT + 4:
        return 0.0
    (microseconds,) = struct.unpack_from("=I", info, _MIN_RTT_AT)
    # Without a sample it has all bits set.
    return float(microseconds) if microseconds < 1 << 31 else 0.0
