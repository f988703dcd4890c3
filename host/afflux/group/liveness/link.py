"""One connection with another process: beats, and the groups that the other one has left.

Its frames: kind, 1 byte; length of the body, 4 bytes, little-endian; the body.
"""

import contextlib
import socket
import struct
import time
from typing import NamedTuple

from afflux_drivers.addresses import named

__all__ = ["BEAT_S", "Address", "Link"]

_HEADER = struct.Struct("<BI")
_BODY_MAX = 64
_BEAT, _LEFT = 1, 2
_LEFT_BODY = struct.Struct("<8sQ")

BEAT_S = 1.0
_UNANSWERED_S = 3.0
"""Retransmissions of a beat go out five times a second, so a lossy path is not taken for a host
that has vanished; with the beat this is below the five seconds that are promised."""

_SILENT_BEATS_MAX = 3600
"""Of a process that is stopped: what it does not read must not fill its kernel's buffer."""

_THIN_LINEAR_TIMEOUTS = 16
"""Linux's TCP_THIN_LINEAR_TIMEOUTS, missing from the socket module."""


class Address(NamedTuple):
    """How another process is reached, as it has published it.

    Attributes:
        identity: Of the process, as long as it has groups; in hexadecimal.
        key: In hexadecimal.
        host, port: Where it listens.
    """

    identity: str
    key: str
    host: str
    port: int


class Link:
    """A connection with another process.

    Attributes:
        peer: Address of the other end, for messages.
        left: Lives of the groups that the other process has left, and after which operation.
        ended: The sign of its end; empty while it lives.
        ended_at: When, in seconds of the monotonic clock.
    """

    def __init__(self, identity: str, tcp: socket.socket, beats: bool) -> None:
        self.identity = identity
        self.tcp = tcp
        self.peer = named(tcp.getpeername())[0]
        self.left: dict[str, int] = {}
        self.ended = ""
        self.ended_at = 0.0
        self._beats = beats
        self._silent_beats = 0
        self._got = bytearray()
        tcp.setblocking(False)
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if beats:
            milliseconds = round(1000 * _UNANSWERED_S)
            tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
            tcp.setsockopt(socket.IPPROTO_TCP, _THIN_LINEAR_TIMEOUTS, 1)

    @property
    def beats(self) -> bool:
        """Whether the other process is on another host, and both are to send beats."""
        return self._beats and not self.ended

    def leave(self, incarnation: str, sequence: int) -> None:
        """Tell the process at the other end that this one has left a group.

        Args:
            incarnation: Of the group, 16 hexadecimal digits.
            sequence: Number of the last operation that this one has carried out.
        """
        if not self.ended:
            self.send(_LEFT, _LEFT_BODY.pack(bytes.fromhex(incarnation), sequence))

    def send(self, kind: int, body: bytes = b"") -> None:
        """Send a frame, or lose it: a peer that is so slow learns nothing in time anyway."""
        # All or nothing: the kernel's buffer is never nearly full of such frames.
        with contextlib.suppress(OSError):
            self.tcp.send(_HEADER.pack(kind, len(body)) + body)

    def beat(self) -> None:
        """Send a beat, unless the other process has not sent any for long."""
        if self._silent_beats < _SILENT_BEATS_MAX:
            self._silent_beats += 1
            self.send(_BEAT)

    def read(self) -> None:
        """Take in what has come."""
        try:
            while found := self.tcp.recv(1 << 16):
                self._silent_beats = 0
                self._got += found
                self._take()
            self.end("its process has closed the connection")
        except BlockingIOError:
            pass
        except (OSError, ValueError) as error:
            what = "the connection has broken"
            if isinstance(error, TimeoutError):
                what = f"its host has not answered for {_UNANSWERED_S:g} s"
            self.end(f"{what}: {error}")

    def end(self, seen: str) -> None:
        """Note the end of the other process, and let go of the socket."""
        if not self.ended:
            self.ended_at = time.monotonic()
            self.ended = seen
        self.tcp.close()

    def _take(self) -> None:
        while len(self._got) >= _HEADER.size:
            kind, length = _HEADER.unpack_from(self._got)
            if length > _BODY_MAX:
                raise ValueError(f"a frame of {length} bytes")
            if len(self._got) < _HEADER.size + length:
                return
            body = bytes(self._got[_HEADER.size : _HEADER.size + length])
            del self._got[: _HEADER.size + length]
            if kind == _LEFT and length == _LEFT_BODY.size:
                incarnation, sequence = _LEFT_BODY.unpack(body)
                self.left[incarnation.hex()] = sequence
