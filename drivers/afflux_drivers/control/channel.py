"""A connection to an aggregator's control channel, from the client's side (protocol, 10.1)."""

import contextlib
import json
import os
import time
import weakref
from typing import Any

from afflux_drivers.addresses import authority, connect_tcp, named
from afflux_drivers.control.line_codes import LineCode, connection_codes, is_nonce, new_nonce
from afflux_drivers.errors import (
    AggregatorMisbehaved,
    AggregatorRefused,
    AggregatorUnreachable,
    NotAuthenticated,
)

__all__ = ["Channel"]

_ANSWER_BYTES = 1 << 16

_WRONG = {
    "required": "it asks for a secret, and none is set here: AFFLUX_SECRET_FILE names the file",
    "none": "a secret is set here (AFFLUX_SECRET_FILE), and it has none: it needs --secret-file",
    "wrong": "it has another secret than the one that is set here (AFFLUX_SECRET_FILE)",
    "broken": "it got a line whose code is wrong, which somebody has changed on its way",
}
"""The `secret` of an answer without a code."""

_UNPROVED = (
    "the answer does not prove that it knows the secret: another program listens there, or "
    "somebody changes what passes"
)


_open: "weakref.WeakSet[Channel]" = weakref.WeakSet()


def _close_inherited() -> None:
    # A worker that loads data must not keep its dead parent's job alive.
    for channel in list(_open):
        channel.close()


os.register_at_fork(after_in_child=_close_inherited)


class Channel:
    """A connection to an aggregator's control port.

    With a secret both ends prove that they know it before any request is sent. It belongs to the
    process that has opened it, and ends with that: forked ones close what they inherit.

    Args:
        address: Host and port.
        timeout_s: To connect, and then for both proofs.
        secret: The aggregator's secret; None if it has none.

    Attributes:
        peer: The aggregator's name and port, for messages.
        host: How to name the aggregator so that all ranks come to the address that has answered.
        broken: Whether the connection has ended, other than by `close`.

    Raises:
        AggregatorUnreachable: If it cannot be reached in time.
        NotAuthenticated: If only one of both has a secret, or they have different ones.
        AggregatorRefused: If it refuses the connection.
        AggregatorMisbehaved: If its answer makes no sense.
    """

    def __init__(self, address: tuple[str, int], timeout_s: float, secret: bytes | None) -> None:
        self.peer = authority(*address)
        self.broken = False
        self._rest = b""
        self._codes: tuple[LineCode, LineCode] | None = None
        try:
            self._socket, self.host = connect_tcp(*address, timeout_s)
        except (OSError, OverflowError) as error:
            raise AggregatorUnreachable(
                f"cannot reach the control channel of the aggregator at {self.peer}: {error}"
            ) from error
        _open.add(self)
        if secret is not None:
            try:
                self._prove(secret, time.monotonic() + timeout_s)
            except BaseException:
                self._socket.close()
                raise

    def ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send one request and return its answer; raise if that is a refusal."""
        what = f"{request['request']} on the aggregator at {self.peer}"
        deadline = time.monotonic() + timeout_s
        text = json.dumps(request).encode()
        line = text if self._codes is None else self._codes[0].sign(text)
        try:
            self._socket.settimeout(timeout_s)
            # The aggregator's last lines before it closed the connection are still to be read.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._socket.sendall(line + b"\n")
            while b"\n" not in self._rest:
                self._socket.settimeout(max(deadline - time.monotonic(), 1e-3))
                data = self._socket.recv(4096)
                if not data:
                    self.broken = True
                    raise AggregatorUnreachable(f"{what}: it closed the connection")
                self._rest += data
                if len(self._rest) > _ANSWER_BYTES:
                    raise AggregatorMisbehaved(f"{what}: the answer is too long")
        except TimeoutError:
            raise AggregatorUnreachable(f"{what} timed out: no answer in {timeout_s:g} s") from None
        except OSError as error:
            self.broken = True
            raise AggregatorUnreachable(f"{what}: {error}") from error
        return self._take_line(what)

    def fileno(self) -> int:
        """Return the socket's file number; -1 once it is closed."""
        return self._socket.fileno()

    def heed(self) -> None:
        """Take what has come without a request.

        Raises:
            AggregatorRefused: The aggregator says that it ends the jobs of this connection.
            AggregatorUnreachable: The connection has ended; then it is `broken`.
            NotAuthenticated: The line is not the aggregator's.
            AggregatorMisbehaved: It makes no sense.
        """
        what = f"the aggregator at {self.peer}"
        try:
            self._socket.setblocking(False)
            data = self._socket.recv(4096)
        except BlockingIOError:
            return
        except OSError as error:
            self.broken = True
            raise AggregatorUnreachable(f"{what}: {error}") from error
        if not data:
            self.broken = True
            raise AggregatorUnreachable(f"{what}: it closed the connection")
        self._rest += data
        # An answer that comes too late says nothing any more.
        while b"\n" in self._rest:
            self._take_line(what)
        if len(self._rest) > _ANSWER_BYTES:
            raise AggregatorMisbehaved(f"{what}: a line is too long")

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _take_line(self, what: str) -> dict[str, Any]:
        line, _, self._rest = self._rest.partition(b"\n")
        answer = self._answer(what, line)
        if answer.get("ok") is not True:
            raise AggregatorRefused(f"{what}: {answer.get('error', 'no reason given')}")
        return answer

    def _prove(self, secret: bytes, deadline: float) -> None:
        nonce = new_nonce()
        hello = {"request": "hello", "nonce": nonce}
        theirs = self.ask(hello, max(deadline - time.monotonic(), 1e-3)).get("nonce")
        if not is_nonce(theirs):
            raise NotAuthenticated(f"hello on the aggregator at {self.peer}: {_UNPROVED}")
        self._codes = connection_codes(secret, nonce, theirs)
        host, port = named(self._socket.getpeername())
        confirm = {"request": "confirm", "host": host, "port": port}
        self.ask(confirm, max(deadline - time.monotonic(), 1e-3))

    def _answer(self, what: str, line: bytes) -> dict[str, Any]:
        """Return the answer that a line is; raise if it is none, or not the aggregator's."""
        text: bytes | None = line
        if self._codes is not None:
            text = self._codes[1].check(line)
        answer = _object(line if text is None else text)
        about = answer.get("secret") if answer is not None else None
        if self._codes is None or text is None:
            # Its sender need not be the aggregator: so it is a reason to end, and says nothing
            # more.
            if isinstance(about, str) and about in _WRONG:
                raise NotAuthenticated(f"{what}: {_WRONG[about]}")
            if text is None:
                raise NotAuthenticated(f"{what}: {_UNPROVED}")
        if answer is None:
            raise AggregatorMisbehaved(f"{what}: the answer is not a JSON object: {line[:80]!r}")
        return answer


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None
