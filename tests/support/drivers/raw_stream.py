"""The end that connects in the handshake of streams, typed from its description alone.

It shares no code with what it talks to, and sends whatever a test wants, also what it must not.
"""

import hashlib
import hmac
import secrets
import socket
import struct

from tests.support.drivers.raw_control import coded

__all__ = ["CHALLENGE_BYTES", "CLAIM_BYTES", "MAGIC", "RawStream", "place"]

MAGIC = b"afflux streams 1"
CHALLENGE_BYTES = 32 + 64 + 1
CLAIM_BYTES = 64 + 1 + 32 + 7 * 4
_VERDICT_BYTES = 64 + 1 + 1


def place(
    group: str,
    ranks: int,
    links: int,
    connecting: int,
    accepting: int,
    link: int,
    number: int = 0,
    sources: int = 1,
) -> bytes:
    """Return the text of a claim."""
    numbers = struct.pack(">7I", ranks, links, connecting, accepting, link, number, sources)
    return hashlib.sha256(group.encode()).digest() + numbers


class RawStream:
    """A connection.

    Args:
        endpoint: Of the rank that accepts.
        source: Own address.
    """

    def __init__(self, endpoint: tuple[str, int], source: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection(endpoint, 10, (source, 0))
        self.nonce = secrets.token_hex(16).encode()
        self.sent: list[bytes] = []

    def __enter__(self) -> "RawStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes, as they are."""
        self.sent.append(data)
        self.socket.sendall(data)

    def receive(self, count: int) -> bytes:
        """Return so many bytes, or fewer if the connection ends."""
        data = b""
        try:
            while len(data) < count and (more := self.socket.recv(count - len(data))):
                data += more
        except ConnectionResetError:
            pass
        return data

    def hello(self) -> bytes:
        """Send the first frame, and return the challenge."""
        self.send(MAGIC + self.nonce)
        return self.receive(CHALLENGE_BYTES)

    def code_claim(self, challenge: bytes, secret: bytes, text: bytes) -> bytes:
        """Return the claim that answers a challenge; assert that the other end knows the secret."""
        key = hmac.new(secret, b"afflux streams 1: key", hashlib.sha256).digest()
        nonces = bytes.fromhex(self.nonce.decode()) + bytes.fromhex(challenge[:32].decode())
        to_accepting, self.to_connecting = (
            hmac.new(key, b"afflux control 1: " + way + nonces, hashlib.sha256).digest()
            for way in (b"client to server", b"server to client")
        )
        assert challenge[32:] == coded(self.to_connecting, 0, b"")
        return coded(to_accepting, 0, text)

    def verdict(self) -> int | None:
        """Return the verdict; None if the connection ends without one."""
        frame = self.receive(_VERDICT_BYTES)
        if not frame:
            return None
        assert frame == coded(self.to_connecting, 1, frame[-1:])
        return frame[-1]

    def claim(self, secret: bytes, text: bytes) -> int | None:
        """Carry out the handshake, and return the verdict."""
        self.send(self.code_claim(self.hello(), secret, text))
        return self.verdict()
