"""The memory that the ranks of one host share, and how it is handed from one to the others.

Rank 0 creates a memfd and passes its descriptor over an abstract Unix socket. A rank that receives
it is on the same host, whatever the hosts' names are. There is no file that could stay behind, and
/dev/shm is not needed.
"""

import array
import contextlib
import hmac
import os
import secrets
import socket
import struct
import time

from afflux_drivers import _native
from afflux_drivers.errors import AffluxError

__all__ = ["HANDING_S", "SegmentOffer", "ShareRefused", "fetch_segment"]

HANDING_S = 2.0
"""A rank of the same host receives the segment within milliseconds; others never do."""

_ONE_PEER_S = 0.25
_SECRET_BYTES = 32
_CREDENTIALS = struct.Struct("3i")
_REQUEST = struct.Struct(f"!{_SECRET_BYTES}sH")
_GIVEN = b"+"


class ShareRefused(AffluxError):
    """Rank 0 does not share the segment with this rank."""


def _user_of(connection: socket.socket) -> int:
    """Return the user id of the process at the other end, as the kernel knows it."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


class SegmentOffer:
    """Rank 0's side: a new segment, and a socket at which the other ranks ask for it.

    Args:
        ranks: Number of ranks in the group.

    Attributes:
        name: Name of the abstract Unix socket, without the leading zero byte.
        secret: What a rank must show.
        descriptor: File descriptor of the segment. It belongs to the caller.

    Raises:
        OSError: There is no memory, descriptor or socket left.
    """

    def __init__(self, ranks: int) -> None:
        self.name = f"afflux-{secrets.token_hex(16)}"
        self.secret = secrets.token_hex(_SECRET_BYTES // 2)
        self._waiting = set(range(1, ranks))
        self.descriptor = os.memfd_create("afflux", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            _native.initialise_segment(self.descriptor, ranks)
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                self._listener.bind(b"\0" + self.name.encode("ascii"))
                self._listener.listen(ranks)
            except BaseException:
                self._listener.close()
                raise
        except BaseException:
            os.close(self.descriptor)
            raise

    def serve(self, timeout_s: float = HANDING_S) -> set[int]:
        """Hand the descriptor to the ranks that ask; return those that did not."""
        deadline = time.monotonic() + timeout_s
        while self._waiting:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            self._listener.settimeout(left_s)
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                break
            with connection, contextlib.suppress(OSError, EOFError):
                connection.settimeout(min(left_s, _ONE_PEER_S))
                self._hand(connection)
        return set(self._waiting)

    def _hand(self, connection: socket.socket) -> None:
        if _user_of(connection) != os.geteuid():
            return
        secret, rank = _REQUEST.unpack(_receive(connection, _REQUEST.size))
        if hmac.compare_digest(secret, self.secret.encode("ascii")):
            socket.send_fds(connection, [_GIVEN], [self.descriptor])
            self._waiting.discard(rank)

    def close(self) -> None:
        """Take no more requests. The descriptor stays open."""
        self._listener.close()


def fetch_segment(name: str, secret: str, rank: int, timeout_s: float = HANDING_S) -> int:
    """Ask rank 0 for the segment: the other ranks' side.

    Returns:
        The segment's descriptor, which belongs to the caller.

    Raises:
        ShareRefused: Rank 0 is on another host, is another user's, or does not answer in time.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(b"\0" + name.encode("ascii"))
            if _user_of(connection) != os.geteuid():
                raise ShareRefused("rank 0's socket belongs to another user")
            connection.sendall(_REQUEST.pack(secret.encode("ascii"), rank))
            answer, descriptors = _receive_descriptors(connection)
        except OSError as error:
            raise ShareRefused(f"cannot reach rank 0's memory: {error}") from error
    if answer != _GIVEN or len(descriptors) != 1:
        for descriptor in descriptors:
            os.close(descriptor)
        raise ShareRefused("rank 0 did not hand its memory over: it belongs to another user")
    return descriptors[0]


def _receive_descriptors(connection: socket.socket) -> tuple[bytes, list[int]]:
    # Not socket.recv_fds, which drops its flags: a process started meanwhile would inherit them.
    descriptors = array.array("i")
    answer, messages, _, _ = connection.recvmsg(
        len(_GIVEN), socket.CMSG_LEN(descriptors.itemsize), socket.MSG_CMSG_CLOEXEC
    )
    for level, kind, data in messages:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return answer, descriptors.tolist()


def _receive(connection: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            raise EOFError
        data += part
    return data
