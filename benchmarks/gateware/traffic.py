"""The workers' traffic through a closed loop, and the expected results.

Elements are chosen so that a result is checked by a comparison of bytes: a lost, doubled or
misplaced contribution changes them.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from afflux_hdl.contract import wire
from benchmarks.gateware.closed_loop import LoopError
from benchmarks.gateware.loop_job import Contribution

__all__ = ["ColumnTraffic", "DenseTraffic", "Overlap", "presence"]

_VARIANTS = 3
"""Different data of a worker, so that a slot's last round and its neighbours' sums differ."""


class DenseTraffic:
    """Every worker sends the same number of blocks in every round, for ever.

    Args:
        workers: N.
        sizes: Numbers of blocks, drawn from at random for each round of each slot.
        seed: Seed of the data and of the choice.
    """

    def __init__(self, workers: int, sizes: Sequence[int], seed: int = 1) -> None:
        random = np.random.default_rng(seed)
        # 64 of these do not overflow an int32.
        shape = (_VARIANTS, workers, wire.LANES_MAX, wire.BLOCK_ELEMENTS)
        data = random.integers(-(2**24), 2**24, shape, dtype=np.int32)
        lanes = np.arange(wire.LANES_MAX, dtype=np.uint32)
        self._blocks = [[each.tobytes() for each in variant] for variant in data]
        self._sums = [variant.sum(0, dtype=np.int32).tobytes() for variant in data]
        self._words = [
            ((worker + 1 << 8) + lanes).astype("<u4").tobytes() for worker in range(workers)
        ]
        self._sizes = [int(size) for size in random.choice(list(sizes), 4096)]

    def blocks(self, slot: int, turn: int) -> int:
        """Return the number of blocks of each packet of this round."""
        return self._sizes[(131 * slot + turn) % len(self._sizes)]

    def contribution(self, worker: int, slot: int, turn: int) -> Contribution:
        """Return the first blocks of the worker's data."""
        blocks = self.blocks(slot, turn)
        data = self._blocks[(slot + turn) % _VARIANTS][worker]
        return Contribution(
            (1 << blocks) - 1, self._words[worker], data[: blocks * wire.BLOCK_BYTES]
        )

    def result(self, slot: int, turn: int, payload: bytes) -> bool:
        """Compare it with the sums."""
        sums = self._sums[(slot + turn) % _VARIANTS]
        if payload != self._words[0] + sums[: self.blocks(slot, turn) * wire.BLOCK_BYTES]:
            raise LoopError(f"slot {slot}, round {turn}: wrong sums")
        return True


class ColumnTraffic:
    """An all-reduce of sparse tensors, block by block, as in section 4 of docs/protocol.md.

    The elements of worker w's blocks are 1 << w, so a sum names its contributors. Exponents are 0.

    Args:
        present: [worker, slot, lane, row]: this block is sent.
    """

    def __init__(self, present: npt.NDArray[np.bool_]) -> None:
        workers, slots, lanes, _ = present.shape
        if lanes != wire.LANES_MAX:
            raise ValueError(f"sparse traffic must have {wire.LANES_MAX} lanes, not {lanes}")
        if workers > 31:
            raise ValueError(f"sparse traffic must have at most 31 workers, not {workers}")
        weights = (1 << np.arange(workers, dtype=np.int64)).astype(np.int32)
        self._expected = np.einsum("wslr,w->slr", present.astype(np.int32), weights)
        self._blocks = [np.full(wire.BLOCK_ELEMENTS, w, "<i4").tobytes() for w in weights]
        # Words of the present blocks in order, then ABSENT.
        longest = int(present.sum(3).max()) + 1
        words = np.full((workers, slots, lanes, longest), wire.ABSENT, dtype=np.uint32)
        for index in np.ndindex(workers, slots, lanes):
            found = np.flatnonzero(present[index]).astype(np.uint32)
            words[index][: found.size] = found << 8 | 255
        self._words = words
        self._position = np.zeros((workers, slots, lanes), dtype=np.intp)
        self._agreed = np.full((slots, lanes), wire.ABSENT, dtype=np.uint32)
        self._lanes = np.arange(lanes)
        self._bits = 1 << np.arange(lanes, dtype=np.uint32)

    def contribution(self, worker: int, slot: int, turn: int) -> Contribution:
        """Return look-ahead in the opening round, then the worker's blocks that were agreed on."""
        words, position = self._words[worker, slot], self._position[worker, slot]
        mine = words[self._lanes, position]
        # Asked again for the same round the answer would differ: a loop with copies is for others.
        sent = (mine == self._agreed[slot]) & (mine != wire.ABSENT)
        position += sent
        present = int(self._bits[sent].sum())
        return Contribution(
            present,
            words[self._lanes, position].astype("<u4").tobytes(),
            self._blocks[worker] * present.bit_count(),
        )

    def result(self, slot: int, turn: int, payload: bytes) -> bool:
        """Compare it with the workers' blocks, and agree on the next rows."""
        agreed = self._agreed[slot]
        lanes = np.flatnonzero(agreed != wire.ABSENT)
        expected = self._expected[slot, lanes, agreed[lanes] >> 8]
        sums = np.frombuffer(payload, "<i4", offset=wire.LOOKAHEAD_BYTES)
        if sums.size != lanes.size * wire.BLOCK_ELEMENTS or not np.array_equal(
            sums, np.repeat(expected, wire.BLOCK_ELEMENTS)
        ):
            raise LoopError(f"slot {slot}, round {turn}: wrong blocks or sums")
        self._expected[slot, lanes, agreed[lanes] >> 8] = 0
        self._agreed[slot] = np.frombuffer(payload, "<u4", wire.LANES_MAX)
        return bool((self._agreed[slot] != wire.ABSENT).any())

    @property
    def complete(self) -> bool:
        """Whether every block that a worker has was in a result."""
        return not self._expected.any()


class Overlap:
    """How the workers' present blocks relate."""

    RANDOM = "random"
    """Independent at each worker."""
    FULL = "full"
    """The same blocks at all workers."""
    NONE = "none"
    """As different as they can be: no block at two workers while density · N ≤ 1."""


def presence(
    workers: int, slots: int, rows: int, density: float, overlap: str, seed: int = 1
) -> npt.NDArray[np.bool_]:
    """Draw [worker, slot, lane, row]: blocks that are not zero, a share of `density` at each."""
    random = np.random.default_rng(seed)
    shape = (slots, wire.LANES_MAX, rows)
    if overlap == Overlap.RANDOM:
        return random.random((workers, *shape)) < density
    draw = random.random(shape)
    if overlap == Overlap.FULL:
        return np.broadcast_to(draw < density, (workers, *shape)).copy()
    if overlap == Overlap.NONE:
        # Intervals of that length, laid end to end around a circle.
        return np.stack([(draw - worker * density) % 1.0 < density for worker in range(workers)])
    raise ValueError(f"unknown overlap {overlap!r}")
