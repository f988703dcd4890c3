"""The memory that the ranks of one host share, and how it is handed from one to the others.

Rank 0 creates a memfd and passes its descriptor over an abstract Unix socket. A rank that receives
it is on the same host, whatever the hosts' names are. There is no file that could stay behind, and
/dev/shm is not needed.

    another rank   secret, own rank
    rank 0         the descriptor
    another rank   whether it has mapped it
    rank 0         whether all have: the group is made

The socket tells more than the descriptor: that nobody listens means that rank 0's process has
ended, and that the connection ends, that the other rank's has.
"""

import array
import contextlib
import hmac
import os
import secrets
import selectors
import socket
import struct
import time

from afflux_drivers import _native
from afflux_drivers.errors import AffluxError

__all__ = ["SegmentClaim", "SegmentOffer", "ShareRefused"]

_ONE_PEER_S = 0.25
"""A rank of the same host that has connected writes within milliseconds."""

_SECRET_BYTES = 32
_CREDENTIALS = struct.Struct("3i")
_REQUEST = struct.Struct(f"!{_SECRET_BYTES}sH")
_LENGTH = struct.Struct("!H")
_TEXT_BYTES_MAX = 4096
_YES = b"+"
_NO = b"-"


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
        secret: Each rank must show it.
        descriptor: File descriptor of the segment. It belongs to the caller.
        refusals: Why ranks cannot map the segment, by rank.

    Raises:
        OSError: There is no memory, descriptor or socket left.
        ValueError: A segment is not for so many ranks.
    """

    def __init__(self, ranks: int) -> None:
        self.name = f"afflux-{secrets.token_hex(16)}"
        self.secret = secrets.token_hex(_SECRET_BYTES // 2)
        self.refusals: dict[int, str] = {}
        self._awaited = set(range(1, ranks))
        self._mapped: set[int] = set()
        self._connections: dict[int, socket.socket] = {}
        self.descriptor = os.memfd_create("afflux", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            _native.initialise_segment(self.descriptor, ranks)
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                self._listener.bind(b"\0" + self.name.encode("ascii"))
                self._listener.listen(ranks)
                self._selector = selectors.PollSelector()
                self._selector.register(self._listener, selectors.EVENT_READ)
            except BaseException:
                self._listener.close()
                raise
        except BaseException:
            os.close(self.descriptor)
            raise

    @property
    def missing(self) -> set[int]:
        """The ranks that have not mapped the segment."""
        return self._awaited - self._mapped

    def serve(self, timeout_s: float) -> None:
        """Hand the descriptor to ranks that ask, until all have mapped it, or one cannot."""
        deadline = time.monotonic() + timeout_s
        while self.missing and not self.refusals:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return
            for key, _ in self._selector.select(left_s):
                if key.data is None:
                    self._accept()
                else:
                    self._read_answer(key.data)

    def conclude(self, agreed: bool) -> None:
        """Tell the ranks that have come whether all have, and take no more requests.

        The descriptor stays open.
        """
        self._listener.close()
        self._selector.close()
        for connection in self._connections.values():
            with connection, contextlib.suppress(OSError):
                connection.sendall(_YES if agreed else _NO)
        self._connections.clear()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(_ONE_PEER_S)
        try:
            rank = self._hand(connection)
        except (OSError, EOFError, ValueError):
            rank = None
        if rank is None:
            connection.close()
            return
        # Its process was started again before this one had noticed that it ended.
        self._forget(rank)
        self._connections[rank] = connection
        self._selector.register(connection, selectors.EVENT_READ, rank)

    def _hand(self, connection: socket.socket) -> int | None:
        if _user_of(connection) != os.geteuid():
            return None
        request = _receive(connection, _REQUEST.size)
        secret, rank = _REQUEST.unpack(request)
        if not hmac.compare_digest(secret, self.secret.encode("ascii")):
            return None
        if rank not in self._awaited:
            return None
        socket.send_fds(connection, [_YES], [self.descriptor])
        return int(rank)

    def _read_answer(self, rank: int) -> None:
        connection = self._connections[rank]
        try:
            (length,) = _LENGTH.unpack(_receive(connection, _LENGTH.size))
            refusal = _receive(connection, length).decode("utf-8")
        except (OSError, EOFError):
            # Its process has ended; if it is started again it comes again.
            self._forget(rank)
            return
        if refusal:
            self.refusals[rank] = refusal
        else:
            self._mapped.add(rank)

    def _forget(self, rank: int) -> None:
        self._mapped.discard(rank)
        connection = self._connections.pop(rank, None)
        if connection is not None:
            self._selector.unregister(connection)
            connection.close()


class SegmentClaim:
    """Another rank's side: it asks rank 0 for the segment, and learns whether all have it.

    Args:
        name: Of rank 0's socket.
        secret: Expected by rank 0.
        rank: Own rank.
        timeout_s: For rank 0 to answer.

    Attributes:
        descriptor: File descriptor of the segment. It belongs to the caller.

    Raises:
        ShareRefused: Rank 0 is not there, is another user's, or does not answer in time.
    """

    def __init__(self, name: str, secret: str, rank: int, timeout_s: float) -> None:
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.descriptor = self._ask(name, secret, rank, timeout_s)
        except BaseException:
            self._connection.close()
            raise

    def answer(self, refusal: str = "") -> None:
        """Tell rank 0 that this rank has mapped the segment, or why it has not.

        Raises:
            OSError: Rank 0's process has ended.
        """
        data = refusal.encode("utf-8")[:_TEXT_BYTES_MAX]
        self._connection.sendall(_LENGTH.pack(len(data)) + data)

    def agreed(self, timeout_s: float) -> bool | None:
        """Wait until rank 0 has heard of all ranks; return whether all have mapped the segment.

        Returns:
            None if the time is over before, or rank 0's process has ended.
        """
        self._connection.settimeout(timeout_s)
        try:
            verdict = self._connection.recv(len(_YES))
        except OSError:
            return None
        return verdict == _YES if verdict else None

    def close(self) -> None:
        """End the connection. The descriptor stays open."""
        self._connection.close()

    def _ask(self, name: str, secret: str, rank: int, timeout_s: float) -> int:
        connection = self._connection
        connection.settimeout(timeout_s)
        try:
            connection.connect(b"\0" + name.encode("ascii"))
            if _user_of(connection) != os.geteuid():
                raise ShareRefused("rank 0's socket belongs to another user")
            connection.sendall(_REQUEST.pack(secret.encode("ascii"), rank))
            answer, descriptors = _receive_descriptors(connection)
        except OSError as error:
            raise ShareRefused(f"cannot reach rank 0's memory: {error}") from error
        if answer == _YES and len(descriptors) == 1:
            return descriptors[0]
        for descriptor in descriptors:
            os.close(descriptor)
        raise ShareRefused("rank 0 did not hand its memory over: it belongs to another user")


def _receive_descriptors(connection: socket.socket) -> tuple[bytes, list[int]]:
    # Not socket.recv_fds, which drops its flags: a process started meanwhile would inherit them.
    descriptors = array.array("i")
    answer, messages, _, _ = connection.recvmsg(
        len(_YES), socket.CMSG_LEN(descriptors.itemsize), socket.MSG_CMSG_CLOEXEC
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
