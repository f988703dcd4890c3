"""A client of the control channel, typed from section 10.1 of `docs/protocol.md` alone.

It shares no code with what it talks to, and sends whatever a test wants, also what it must not.
"""

import hashlib
import hmac
import json
import secrets
import socket
from typing import Any

__all__ = ["RawControl", "coded"]


def coded(key: bytes, number: int, text: bytes) -> bytes:
    """Return a line with its code, without its end."""
    code = hmac.new(key, number.to_bytes(8, "big") + text, hashlib.sha256).hexdigest()
    return code.encode() + b" " + text


class RawControl:
    """A connection.

    Args:
        address: The aggregator's.
        source: Own address.
    """

    def __init__(self, address: tuple[str, int], source: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection(address, 5, (source, 0))
        self.rest = b""
        self.sent: list[bytes] = []
        self.client_key = self.server_key = b""
        self.numbers = [0, 0]

    def __enter__(self) -> "RawControl":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, line: bytes) -> None:
        """Send a line, as it is."""
        self.sent.append(line)
        self.socket.sendall(line + b"\n")

    def line(self) -> bytes:
        """Return the next line; empty at the end of the connection."""
        while b"\n" not in self.rest:
            try:
                data = self.socket.recv(4096)
            except ConnectionResetError:
                return b""
            if not data:
                return b""
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        return line

    def ask(self, **request: Any) -> dict[str, Any]:
        """Ask without a code."""
        self.send(json.dumps(request).encode())
        answer = json.loads(self.line())
        assert isinstance(answer, dict)
        return answer

    def hello(self, secret: bytes, nonce: str | None = None) -> dict[str, Any]:
        """Exchange nonces, and make the keys of this connection."""
        own = nonce or secrets.token_hex(16)
        answer = self.ask(request="hello", nonce=own)
        if answer["ok"]:
            nonces = bytes.fromhex(own) + bytes.fromhex(answer["nonce"])
            self.client_key, self.server_key = (
                hmac.new(secret, f"afflux control 1: {way}".encode() + nonces, "sha256").digest()
                for way in ("client to server", "server to client")
            )
        return answer

    def ask_coded(self, **request: Any) -> dict[str, Any]:
        """Ask with a code, and check that of the answer; one without a code is returned, too."""
        self.send(coded(self.client_key, self.numbers[0], json.dumps(request).encode()))
        self.numbers[0] += 1
        line = self.line()
        if line[:1] == b"{":
            answer = json.loads(line)
        else:
            assert line == coded(self.server_key, self.numbers[1], line[65:])
            self.numbers[1] += 1
            answer = json.loads(line[65:])
        assert isinstance(answer, dict)
        return answer

    def prove(self, secret: bytes) -> dict[str, Any]:
        """Do all that comes before the first request."""
        assert self.hello(secret)["ok"]
        host, port = self.socket.getpeername()[:2]
        return self.ask_coded(request="confirm", host=host, port=port)
