"""The shapes that random frames seldom have: bursts of the smallest ones, and near misses.

A frame of one to three beats is judged while its neighbours still arrive, and one header bit that
is not compared lets a near miss through. Both are drawn here for the fuzzer's storm.
"""

import random
import struct

from tests.scenarios.corruption import HEADERS_BYTES
from tests.scenarios.packing import HEADER, Peer, pack_frame, repaired

__all__ = ["burst", "near_miss"]

JOIN = 2
LARGEST_BYTES = 192
"""Three beats of 512 bits."""


def near_miss(choose: random.Random, frame: bytes) -> bytes:
    """Return a frame that differs from a right one by little, with right checksums.

    One bit of a header, two octets that have changed places, or lengths that are off by a little
    and agree with one another or not; `tests/scenarios/near_misses.py` has all of these of a frame.
    """
    changed = bytearray(frame)
    what = choose.random()
    if what < 0.6 or len(frame) < HEADERS_BYTES:
        changed[choose.randrange(min(len(frame), HEADERS_BYTES))] ^= 1 << choose.randrange(8)
    elif what < 0.75:
        at = choose.randrange(HEADERS_BYTES - 1)
        changed[at : at + 2] = changed[at : at + 2][::-1]
    else:
        shift = choose.choice((1, -1)) << choose.randrange(10)
        if choose.random() < 0.5:
            size = max(HEADERS_BYTES, len(frame) + shift)
            changed = changed[:size].ljust(size, b"\0")
        for at in choose.choice(((16,), (38,), (16, 38))):
            length = int.from_bytes(frame[at : at + 2], "big") + shift
            changed[at : at + 2] = (length % 2**16).to_bytes(2, "big")
    return repaired(bytes(changed)) if len(changed) >= HEADERS_BYTES else bytes(changed)


def burst(choose: random.Random, right: bytes, source: Peer, engine: Peer, key: int) -> list[bytes]:
    """Return frames of one to three beats of 512 bits, of one kind, to be sent back to back.

    Args:
        choose: Draws everything.
        right: A frame of a worker, of which those that miss by little are made.
        source: A stranger.
        engine: Where the engine is.
        key: Of some job, which a stranger has got hold of.
    """
    count = choose.choice((2, 3, 8, 24))
    kind = choose.randrange(6)
    if kind == 0:
        size = choose.choice((1, 60, 63, 64, 65, 66, 75, 127, 128, 129, LARGEST_BYTES))
        return [choose.randbytes(size) for _ in range(count)]
    if kind == 1:
        # Its headers are right, and its end is missing.
        return [right[: choose.randrange(42, LARGEST_BYTES)] for _ in range(count)]
    if kind == 2:
        return [near_miss(choose, right[:LARGEST_BYTES]) for _ in range(count)]
    if kind == 3:
        return [near_miss(choose, right) for _ in range(count)]
    frames = []
    for _ in range(count):
        # Refused: of another version, job, key or worker; some without a checksum.
        version = 2 if kind == 4 else choose.choice((0, 1, 3, 15))
        fields = (version << 4 | JOIN, 0, choose.randrange(6), choose.randrange(70), 0, 0, 0)
        payload = HEADER.pack(*fields, key ^ choose.choice((0, 1, 1 << 63)), 0)
        payload += struct.pack("<16I", *(0,) * 16)
        frames.append(pack_frame(source, engine, payload, checked=choose.random() < 0.8))
    return frames
