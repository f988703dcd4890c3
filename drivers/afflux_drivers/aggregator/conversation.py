"""The lines of one connection of the control channel, from both sides (protocol, section 10.1)."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from afflux_drivers.addresses import authority, same_address
from afflux_drivers.aggregator.job import Job
from afflux_drivers.control.line_codes import (
    NONCE_DIGITS,
    LineCode,
    connection_codes,
    is_nonce,
    new_nonce,
)

__all__ = ["Client", "Conversation"]


@dataclass(eq=False)
class Client:
    """A client, for as long as its connection lasts.

    Attributes:
        peer: Its address, as limits count it (`afflux_drivers.aggregator.peers`).
        jobs: Jobs that end with it.
        gone: Whether it has closed its end already, behind the lines that are being answered.
    """

    peer: str
    jobs: list[Job] = field(default_factory=list)
    gone: bool = False


class Conversation:
    """The lines of one connection. Not thread-safe.

    With a secret a client is a stranger until it has proved that it knows it; without one, until
    whoever reads its lines says otherwise.

    Args:
        client: The one that asks.
        handle: Answers a request of a client.
        own: Own address and port, at which the client has reached the aggregator.
        secret: Known to the client; None if anybody may ask.
        any_address: Whether the client may have reached another address than `own`, which is then
            behind address translation.

    Attributes:
        client: As given.
        known: Whether the client has shown that it may be served.
        over: Whether the connection is to end once the last answer has gone.
    """

    def __init__(
        self,
        client: Client,
        handle: Callable[[bytes, Client], bytes],
        own: tuple[str, int],
        secret: bytes | None,
        *,
        any_address: bool = False,
    ) -> None:
        self.client = client
        self.known = False
        self.over = False
        self._handle = handle
        self._own = own
        self._secret = secret
        self._any_address = any_address
        self._codes: tuple[LineCode, LineCode] | None = None

    def answer(self, line: bytes) -> bytes:
        """Return the line that answers a line, with its end."""
        if self._secret is None:
            if _wants_hello(line):
                return _plain("none", "this aggregator has no secret")
            return self._handle(line, self.client)
        if self._codes is None:
            return self._greet(line, self._secret)
        theirs, ours = self._codes
        text = theirs.check(line)
        if text is None:
            self.over = True
            if self.known:
                return _plain("broken", "the code of this line is wrong: it was changed on its way")
            return _plain("wrong", "the secret is another one than this aggregator's")
        answer = self._handle(text, self.client) if self.known else self._admit(text)
        return ours.sign(answer.removesuffix(b"\n")) + b"\n"

    def refuse(self, reason: str) -> bytes:
        """Return what answers a line of a client for whom there is no room; ends the connection."""
        self.over = True
        answer = json.dumps({"ok": False, "error": reason}).encode()
        return (answer if self._codes is None else self._codes[1].sign(answer)) + b"\n"

    def _greet(self, line: bytes, secret: bytes) -> bytes:
        request = _object(line)
        if request is None or request.get("request") != "hello":
            self.over = True
            return _plain("required", "this aggregator asks for a secret")
        theirs = request.get("nonce")
        if not is_nonce(theirs):
            self.over = True
            return _plain("required", f"nonce must be {NONCE_DIGITS} hexadecimal digits")
        ours = new_nonce()
        self._codes = connection_codes(secret, theirs, ours)
        return json.dumps({"ok": True, "nonce": ours}).encode() + b"\n"

    def _admit(self, text: bytes) -> bytes:
        """Answer the first line with a code: its sender knows the secret."""
        self.known = True
        request = _object(text) or {}
        host, port = request.get("host"), request.get("port")
        here = isinstance(host, str) and same_address(host, self._own[0]) and port == self._own[1]
        if request.get("request") == "confirm" and (here or self._any_address):
            return b'{"ok": true}'
        self.over = True
        if request.get("request") != "confirm":
            return _failure("the first request with a code must be confirm")
        # Else whoever has a port of which clients expect an aggregator could pass their lines on to
        # another aggregator with the same secret, and be taken for it.
        return _failure(
            f"it listens at {authority(*self._own)}, and was reached as {str(host)[:64]} port "
            f"{str(port)[:8]}: behind address translation it needs --translated"
        )


def _wants_hello(line: bytes) -> bool:
    return (_object(line) or {}).get("request") == "hello"


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        request = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return request if isinstance(request, dict) else None


def _failure(reason: str) -> bytes:
    return json.dumps({"ok": False, "error": reason}).encode()


def _plain(about: str, reason: str) -> bytes:
    """Return an answer without a code; it says in `secret` what is wrong with that."""
    return json.dumps({"ok": False, "secret": about, "error": reason}).encode() + b"\n"
