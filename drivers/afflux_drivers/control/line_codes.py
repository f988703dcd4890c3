"""Codes that prove that a line of the control channel is the peer's (protocol, section 10.1).

Both ends know a secret, which never crosses the network. Each sends a nonce; secret and nonces give
a key for each direction of this connection, and each line carries a code (HMAC-SHA256) over its
number and its bytes. So a line from another connection, from the other direction, out of its turn
or changed by one bit does not fit. Such lines are not encrypted.
"""

import hmac
import secrets
from typing import TypeGuard

__all__ = ["NONCE_DIGITS", "LineCode", "connection_codes", "is_nonce", "new_nonce"]

NONCE_DIGITS = 32
_CODE_DIGITS = 64
_CLIENT = b"afflux control 1: client to server"
_SERVER = b"afflux control 1: server to client"


class LineCode:
    """Makes the codes of the lines of one direction, or checks them, each in its turn.

    Args:
        key: Of this direction of this connection.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = 0

    def sign(self, text: bytes) -> bytes:
        """Return the next line, without its end, that carries this text."""
        return self._code(text) + b" " + text

    def check(self, line: bytes) -> bytes | None:
        """Return what the next line carries, or None if it is not the one that the peer sent."""
        text = line[_CODE_DIGITS + 1 :]
        # In constant time: a stranger must not find the code digit by digit.
        fits = hmac.compare_digest(line[: _CODE_DIGITS + 1], self._code(text) + b" ")
        return text if fits else None

    def _code(self, text: bytes) -> bytes:
        number = self._number.to_bytes(8, "big")
        self._number += 1
        return hmac.digest(self._key, number + text, "sha256").hex().encode()


def new_nonce() -> str:
    """Return 16 random bytes, in hexadecimal."""
    return secrets.token_hex(NONCE_DIGITS // 2)


def is_nonce(text: object) -> TypeGuard[str]:
    """Return whether a peer's nonce has the form of one."""
    if not isinstance(text, str) or len(text) != NONCE_DIGITS:
        return False
    return set(text) <= set("0123456789abcdef")


def connection_codes(
    secret: bytes, client_nonce: str, server_nonce: str
) -> tuple[LineCode, LineCode]:
    """Return the codes of a connection: of lines to the server, and of those to the client.

    Args:
        secret: The secret.
        client_nonce: In hexadecimal.
        server_nonce: In hexadecimal.
    """
    nonces = bytes.fromhex(client_nonce) + bytes.fromhex(server_nonce)
    client, server = (
        LineCode(hmac.digest(secret, direction + nonces, "sha256"))
        for direction in (_CLIENT, _SERVER)
    )
    return client, server
