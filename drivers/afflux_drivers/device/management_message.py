"""Messages of the management protocol, as their client makes and reads them.

`docs/management.md` has the layout; the board's side of it is gateware.
"""

import struct
from dataclasses import dataclass

from afflux_hdl.contract import management
from afflux_hdl.contract.management import MessageType, Status
from afflux_hdl.contract.siphash import siphash

__all__ = ["Answer", "Request"]

_MESSAGE = struct.Struct("<2sBBBBIQQ8sQ")
_TAGGED = slice(2, 34)
_VALUES = struct.Struct("<I4s")


def _pad(key: bytes, tag: int) -> int:
    """Return what the last word before a tag is enciphered with."""
    return siphash(key, tag.to_bytes(8, "little"))


@dataclass(frozen=True)
class Request:
    """A request, complete: what is sent, again and again, until it is answered.

    Attributes:
        kind: HELLO, READ or WRITE.
        address: Address of the register.
        sequence: Number within the session.
        payload: The bytes to send.
        tag: Tag of it; its answer is bound to it.
    """

    kind: MessageType
    address: int
    sequence: int
    payload: bytes
    tag: int

    @classmethod
    def hello(cls, challenge: int) -> "Request":
        """Ask for the session, with 64 random bits to which the answer is bound."""
        head = (management.MAGIC, management.VERSION, MessageType.HELLO, 0, 0)
        payload = _MESSAGE.pack(*head, 0, 0, 0, bytes(8), challenge)
        return cls(MessageType.HELLO, 0, 0, payload, challenge)

    @classmethod
    def access(
        cls,
        key: bytes,
        kind: MessageType,
        *,
        session: int,
        sequence: int,
        address: int,
        value: int,
        board: bytes,
    ) -> "Request":
        """Ask for an access to a register.

        Args:
            key: The board's.
            kind: READ or WRITE.
            session: The board's.
            sequence: One more than the latest of the session.
            address: Of the register.
            value: To be written; 0 in a READ.
            board: IPv4 address of the board, 4 octets.
        """
        head = (management.MAGIC, management.VERSION, kind, 0, 0, address, session, sequence)
        values = _VALUES.pack(value, board)
        tag = siphash(key, _MESSAGE.pack(*head, values, 0)[_TAGGED])
        enciphered = int.from_bytes(values, "little") ^ _pad(key, tag)
        payload = _MESSAGE.pack(*head, enciphered.to_bytes(8, "little"), tag)
        return cls(kind, address, sequence, payload, tag)


@dataclass(frozen=True)
class Answer:
    """An answer to one certain request, of somebody who has the key.

    Attributes:
        status: The outcome of the request.
        address: As in the request; of a HELLO `management.IDENTITY`.
        session: The board's.
        sequence: The request's if it was carried out, else the latest of the session.
        value: That was read.
        board: IPv4 address of the board.
    """

    status: Status
    address: int
    session: int
    sequence: int
    value: int
    board: bytes

    @classmethod
    def read(cls, key: bytes, request: Request, payload: bytes) -> "Answer | None":
        """Return the answer to a request; None if the payload is none, or not under this key.

        Raises:
            ValueError: If it is in the protocol's form, but not an answer to this request.
        """
        if len(payload) != management.MESSAGE_BYTES:
            raise ValueError(f"it has {len(payload)} bytes, not {management.MESSAGE_BYTES}")
        (
            *head,
            address,
            session,
            sequence,
            enciphered,
            tag,
        ) = _MESSAGE.unpack(payload)
        magic, version, kind, status, _ = head
        if (magic, version, kind) != (
            management.MAGIC,
            management.VERSION,
            request.kind | management.ANSWER,
        ):
            raise ValueError("it is not an answer to this kind of request")
        plain = (int.from_bytes(enciphered, "little") ^ _pad(key, tag)).to_bytes(8, "little")
        # Over the answer in the clear, and the tag of what it answers.
        tagged = payload[_TAGGED][:-8] + plain + request.tag.to_bytes(8, "little")
        if siphash(key, tagged) != tag:
            return None
        value, board = _VALUES.unpack(plain)
        return cls(Status(status), address, session, sequence, value, board)
