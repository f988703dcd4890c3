"""One collective of a golden worker: its state, and the fingerprint that opens it (section 9)."""

import zlib
from collections import deque
from dataclasses import dataclass

from afflux_sim.golden.encoding import Encoding
from afflux_sim.golden.frames import ELEMENTS, Block, as_block

__all__ = ["Operation", "SlotProgress", "fingerprint"]


def fingerprint(
    number: int, reduction: str, dtype: str, shape: tuple[int, ...], *, rank: int
) -> Block:
    """Return the fingerprint block of section 9 that worker `rank` among all of them sends."""
    text = f"{number}:{reduction}:{dtype}:{'x'.join(map(str, shape))}"
    elements = [0] * ELEMENTS
    elements[rank] = zlib.crc32(text.encode("ascii"))
    return as_block(elements)


@dataclass
class SlotProgress:
    """A worker's state of an active slot during an operation.

    `columns` holds for each lane the look-ahead words of the blocks still to come, `agreed` the
    words of the latest result (None in the opening round), `frame` the outstanding packet.
    """

    columns: list[deque[int]]
    agreed: tuple[int, ...] | None
    frame: bytes
    done: bool = False


@dataclass
class Operation:
    """One collective of a worker: its arguments, its blocks and the progress of its slots.

    `share` is (k, K): of the aggregators that share the columns, this worker speaks to number k.
    """

    number: int
    reduction: str
    dtype: str
    shape: tuple[int, ...]
    encoding: Encoding
    slots: list[SlotProgress]
    share: tuple[int, int] = (0, 1)
