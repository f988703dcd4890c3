"""The handshake of two ranks on a new connection: each proves that it knows the group's secret.

    connecting rank   hello: magic and a nonce
    accepting rank    challenge: a nonce of its own, and a code
    connecting rank   claim: the place of this connection in the group, with a code
    accepting rank    verdict: whether the connection has this place now, with a code

A code (`afflux_drivers.control.line_codes`) takes the secret and both nonces to make, so it fits no
other connection and neither the other direction nor another frame of this one. Frames have fixed
lengths: neither end reads a byte of what follows the handshake, or more than a frame of a stranger.
"""

import asyncio
import enum
import hashlib
import hmac
import socket
import struct
from dataclasses import astuple, dataclass

from afflux_drivers.control.line_codes import (
    NONCE_DIGITS,
    LineCode,
    connection_codes,
    is_nonce,
    new_nonce,
)
from afflux_drivers.errors import NotAuthenticated

__all__ = [
    "AGGREGATED_RANKS",
    "Claim",
    "Member",
    "Verdict",
    "aggregator_key",
    "answer",
    "examine",
    "introduce",
]

AGGREGATED_RANKS = 63
"""Most ranks of a mesh that has an aggregator, which is a member as they are."""

_MAGIC = b"afflux streams 1"
_KEY = b"afflux streams 1: key"
_AGGREGATOR = b"afflux streams 1: aggregator"
_CLAIM = struct.Struct(">32s7I")
_HELLO_BYTES = len(_MAGIC) + NONCE_DIGITS
_CODE_BYTES = len(LineCode(b"").sign(b""))
_CHALLENGE_BYTES = NONCE_DIGITS + _CODE_BYTES
_CLAIM_BYTES = _CODE_BYTES + _CLAIM.size
_VERDICT_BYTES = _CODE_BYTES + 1


@dataclass(frozen=True)
class Claim:
    """The place of a connection in a group.

    Attributes:
        group: SHA-256 of the group's name.
        ranks: Number of ranks.
        links: Connections between each two of them.
        connecting: The rank that connects.
        accepting: The rank that accepts; of an aggregator, the number of ranks.
        link: Number of this connection between the two.
        number: The connecting rank's number in a larger group, for messages.
        sources: How many ranks of that the connecting one stands for.
    """

    group: bytes
    ranks: int
    links: int
    connecting: int
    accepting: int
    link: int
    number: int
    sources: int

    def pack(self) -> bytes:
        """Return the claim as it is sent."""
        return _CLAIM.pack(*astuple(self))


class Verdict(enum.IntEnum):
    """The answer to a claim."""

    ACCEPTED = 0
    OCCUPIED = 1
    """Another connection has this place."""
    OTHER_GROUP = 2
    """The claim names another group, or another incarnation of it."""
    OTHER_PLACE = 3
    """The group has no such place here: the two count ranks or links differently."""
    NO_ROOM = 4
    """An aggregator has as many connections as it takes, of this peer or at all."""

    @property
    def reason(self) -> str:
        """The reason of a refusal, said of the rank that accepts; empty if it is none."""
        return _REASONS[self]


_REASONS = (
    "",
    "this place is taken by another connection",
    "it is in another group, or in another incarnation of this one",
    "it is another rank, or has another number of ranks or connections",
    "it has no room for more connections",
)


@dataclass(frozen=True)
class Member:
    """A rank of a group, as it sees the group.

    Attributes:
        secret: Known to all ranks and nobody else.
        group: Name of this incarnation of the group.
        rank: Its own.
        ranks: Number of ranks.
        links: Connections between each two of them.
        number: Its number in a larger group.
        sources: How many ranks of that it stands for.
    """

    secret: bytes
    group: str
    rank: int
    ranks: int
    links: int
    number: int
    sources: int = 1

    def claim(self, accepting: int, link: int) -> Claim:
        """Return the claim to a connection with another rank."""
        digest = hashlib.sha256(self.group.encode()).digest()
        return Claim(
            digest, self.ranks, self.links, self.rank, accepting, link, self.number, self.sources
        )

    def judge(self, claim: Claim) -> Verdict:
        """Return the verdict on a claim of a higher rank to a place that nobody has."""
        if claim.group != hashlib.sha256(self.group.encode()).digest():
            return Verdict.OTHER_GROUP
        known = self.rank < claim.connecting < self.ranks and claim.link < self.links
        same = (claim.ranks, claim.links, claim.accepting) == (self.ranks, self.links, self.rank)
        return Verdict.ACCEPTED if known and same else Verdict.OTHER_PLACE


async def introduce(tcp: socket.socket, secret: bytes, claim: Claim) -> Verdict:
    """Carry out the handshake at the end that connects, and return the other end's verdict.

    Args:
        tcp: A connected socket, non-blocking.
        secret: The group's.
        claim: The place that this connection is to have.

    Raises:
        OSError: The connection has ended.
        NotAuthenticated: The other end does not know the secret.
    """
    loop = asyncio.get_running_loop()
    ours = new_nonce()
    await loop.sock_sendall(tcp, _MAGIC + ours.encode())
    challenge = await _receive(tcp, _CHALLENGE_BYTES, "its challenge")
    theirs = challenge[:NONCE_DIGITS].decode("ascii", "replace")
    if not is_nonce(theirs):
        raise NotAuthenticated("its answer is none of this handshake")
    to_accepting, to_connecting = connection_codes(_key(secret), ours, theirs)
    if to_connecting.check(challenge[NONCE_DIGITS:]) is None:
        raise NotAuthenticated("it has another secret")
    await loop.sock_sendall(tcp, to_accepting.sign(claim.pack()))
    verdict = to_connecting.check(await _receive(tcp, _VERDICT_BYTES, "its verdict"))
    if verdict is None:
        raise NotAuthenticated("its verdict was changed on its way")
    return Verdict(verdict[0])


async def examine(tcp: socket.socket, secret: bytes) -> tuple[Claim, LineCode]:
    """Carry out the handshake at the end that accepts, up to the verdict.

    Args:
        tcp: An accepted socket, non-blocking.
        secret: The group's.

    Returns:
        The claim of the other end, which knows the secret, and what codes the `answer`.

    Raises:
        OSError: The connection has ended.
        NotAuthenticated: The other end does not know the secret.
    """
    loop = asyncio.get_running_loop()
    hello = await _receive(tcp, _HELLO_BYTES, "its hello")
    theirs = hello[len(_MAGIC) :].decode("ascii", "replace")
    if not hello.startswith(_MAGIC) or not is_nonce(theirs):
        raise NotAuthenticated("its first bytes are none of this handshake")
    ours = new_nonce()
    to_accepting, to_connecting = connection_codes(_key(secret), theirs, ours)
    await loop.sock_sendall(tcp, ours.encode() + to_connecting.sign(b""))
    claim = to_accepting.check(
        await _receive(tcp, _CLAIM_BYTES, "its claim, as a rank with another secret does")
    )
    if claim is None:
        raise NotAuthenticated("it has another secret")
    return Claim(*_CLAIM.unpack(claim)), to_connecting


async def answer(tcp: socket.socket, codes: LineCode, verdict: Verdict) -> None:
    """Send the verdict on a claim.

    Args:
        tcp: The socket.
        codes: As `examine` has returned it.
        verdict: The verdict.

    Raises:
        OSError: The connection has ended.
    """
    await asyncio.get_running_loop().sock_sendall(tcp, codes.sign(bytes([verdict])))


def aggregator_key(secret: bytes | None) -> bytes:
    """Return the 16 bytes that ranks prove to an aggregator that they know.

    Rank 0 alone needs the secret; the others get this from it, which opens no control channel.

    Args:
        secret: The aggregator's; None if it has none.
    """
    return hmac.digest(secret or b"", _AGGREGATOR, "sha256")[:16]


def _key(secret: bytes) -> bytes:
    # Of its own: no code of a control channel that has the same secret is one of a handshake.
    return hmac.digest(secret, _KEY, "sha256")


async def _receive(tcp: socket.socket, count: int, what: str) -> bytes:
    received = b""
    while len(received) < count:
        data = await asyncio.get_running_loop().sock_recv(tcp, count - len(received))
        if not data:
            raise ConnectionResetError(f"it closed the connection before {what}")
        received += data
    return received
