"""Frames for a board's management, of all kinds, in any order; made from the golden model alone."""

import random
from collections.abc import Iterator

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from afflux_sim.golden.management import GoldenManagement
from afflux_sim.golden.siphash import siphash_2_4

__all__ = ["HELLO", "READ", "WRITE", "random_frames", "request", "request_frame"]

HELLO, READ, WRITE = 1, 2, 3
ADDRESSES = (
    *(0x000, 0x040, 0x044, 0x0F8, 0x800, 0xFFC, 0x1000, 0x1008, 0x100C, 0x1010, 0x1014, 0x1018),
    *(0x101C, 0x1020, 0x102C, 0x1034, 0x1038, 0x103C, 0x1040, 0x10FC, 0x1100, 0x1114, 0x1138),
    *(0x113C, 0x1101, 0x2000, 0x1_0000, 0xFFFF_FFFC),
)


def request(
    board: GoldenManagement,
    kind: int,
    address: int = 0,
    value: int = 0,
    *,
    sequence: int | None = None,
    session: int | None = None,
    to: bytes | None = None,
    challenge: bytes = bytes(range(1, 9)),
) -> bytes:
    """Return a request; with the next number of the present session unless told otherwise."""
    if kind == HELLO:
        return b"AM\1\1" + bytes(30) + challenge
    head = bytes([1, kind, 0, 0]) + address.to_bytes(4, "little")
    head += (board.session if session is None else session).to_bytes(8, "little")
    head += (board.latest + 1 if sequence is None else sequence).to_bytes(8, "little")
    word = value.to_bytes(4, "little") + (board.address if to is None else to)
    tag = siphash_2_4(board.key, head + word)
    pad = siphash_2_4(board.key, tag)
    return b"AM" + head + bytes(a ^ b for a, b in zip(word, pad, strict=True)) + tag


def request_frame(
    payload: bytes,
    *,
    source: str = "10.0.0.1",
    mac: str = "02:00:00:00:00:01",
    to: str = "10.0.0.9",
    port: int = 50000,
    checksum: bool = True,
    padding: bytes = b"",
) -> bytes:
    """Return the frame of a datagram from the controller."""
    udp = UDP(sport=port, dport=4699) if checksum else UDP(sport=port, dport=4699, chksum=0)
    frame = Ether(src=mac, dst="02:af:fa:00:00:09") / IP(src=source, dst=to) / udp / payload
    return bytes(frame) + padding


def random_frames(
    choose: random.Random, board: GoldenManagement, number: int
) -> Iterator[tuple[bytes, bool]]:
    """Yield frames with error marks; the taker of one gives it to the golden model at once."""
    past: list[bytes] = []

    def new(**options: int) -> bytes:
        kind = choose.choice((READ, WRITE))
        value = choose.getrandbits(32) if kind == WRITE else 0
        return request(board, kind, choose.choice(ADDRESSES), value, **options)  # type: ignore[arg-type]

    for _ in range(number):
        kind = choose.randrange(16)
        if kind < 5:
            payload = new()
            past.append(payload)
        elif kind == 5:
            payload = request(board, HELLO, challenge=choose.randbytes(8))
        elif kind < 8 and past:
            payload = choose.choice(past[-70:])
        elif kind == 8:
            back = choose.choice((0, 1, 62, 63, 64, 65, 1 << 16, 1 << 32))
            payload = new(sequence=max(0, board.latest - back))
        elif kind == 9:
            ahead = choose.choice((2, 3, 1 << 16, 1 << 32, 1 << 48))
            payload = new(sequence=board.latest + ahead)
        elif kind == 10:
            payload = new(session=board.session ^ 1 << choose.randrange(64))
        elif kind == 11:
            payload = request(board, WRITE, 0x40, 1, to=choose.randbytes(4))
        else:
            payload = new() if kind & 1 else request(board, HELLO)
        frame = request_frame(
            payload,
            port=choose.randrange(1, 65536),
            checksum=choose.random() < 0.5,
            padding=choose.randbytes(choose.choice((0, 0, 0, 1, 2, 3, 4, 30))),
        )
        yield _harmed(choose, frame) if kind >= 12 else frame, choose.random() < 0.02


def _harmed(choose: random.Random, frame: bytes) -> bytes:
    """Return a frame with something wrong, or not the board's affair."""
    how = choose.randrange(6)
    if how == 0:
        return frame[: choose.randrange(1, len(frame))]
    if how == 1:
        return choose.randbytes(choose.randrange(1, 200))
    if how == 2:
        return request_frame(
            frame[42:84],
            source=choose.choice(("10.0.0.2", "10.0.0.1", "0.0.0.0")),
            mac=choose.choice(("ff:ff:ff:ff:ff:ff", "02:00:00:00:00:01")),
            port=choose.choice((0, 7)),
        )
    if how == 3:
        at = choose.randrange(14, 34)
        return frame[:at] + choose.randbytes(1) + frame[at + 1 :]
    bit = choose.randrange(8 * min(84, len(frame)))
    harmed = bytearray(frame)
    harmed[bit // 8] ^= 1 << bit % 8
    return bytes(harmed)
