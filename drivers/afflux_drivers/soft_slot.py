"""A slot of the software engine: what its two versions hold (protocol, section 5)."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from afflux_hdl import wire

__all__ = ["SoftSlot"]


@lru_cache(maxsize=1 << 12)
def _lanes(present: int) -> NDArray[np.intp]:
    return np.array([lane for lane in range(wire.LANES_MAX) if present >> lane & 1], np.intp)


@lru_cache(maxsize=1 << 12)
def _places(present: int, wanted: int) -> NDArray[np.intp]:
    """Places, among the blocks of a packet, of those in the wanted lanes."""
    lanes = [lane for lane in range(wire.LANES_MAX) if present >> lane & 1]
    return np.array([i for i, lane in enumerate(lanes) if wanted >> lane & 1], np.intp)


class SoftSlot:
    """State R, seen and the two versions, each with the header fields of its round.

    Args:
        lanes: Lanes that the engine was built with.

    Attributes:
        round: R.
        seen: Bitmap of the workers that have contributed to R.
        everyone: Bitmap of all workers of the job; 0 before the slot's first job.
        waiting: Whether R's partial sum has gone to a parent, whose result is not in.
        held: Whether the version holds a round of this job run, by version.
        present: Bitmap of the lanes, by version.
        operation: Operation number, by version.
        opcode_dtype: Opcode << 4 | dtype, by version.
        conflict: Whether contributions disagreed, by version.
    """

    __slots__ = (
        "_blocks",
        "_words",
        "conflict",
        "everyone",
        "held",
        "opcode_dtype",
        "operation",
        "present",
        "round",
        "seen",
        "waiting",
    )

    def __init__(self, lanes: int) -> None:
        self._blocks: NDArray[np.int32] = np.zeros((2, lanes, wire.BLOCK_ELEMENTS), np.int32)
        self._words: NDArray[np.uint32] = np.zeros((2, wire.LANES_MAX), np.uint32)
        self.reset(1, 0)

    def reset(self, first_round: int, everyone: int) -> None:
        """The initial state for a job whose rounds start at `first_round`."""
        self.round = (first_round - 1) & 0xFFFF_FFFF
        self.seen = self.everyone = everyone
        self.waiting = False
        self.held = [False, False]
        self.present = [0, 0]
        self.operation = [0, 0]
        self.opcode_dtype = [0, 0]
        self.conflict = [False, False]

    def open(
        self, round_: int, operation: int, opcode_dtype: int, words: NDArray[np.uint32]
    ) -> None:
        """Opens a round with its first contribution's header and words."""
        version = round_ & 1
        self.round = round_
        self.seen = 0
        self.held[version] = True
        self.present[version] = 0
        self.operation[version] = operation
        self.opcode_dtype[version] = opcode_dtype
        self.conflict[version] = False
        self._words[version] = words

    def take_least(self, words: NDArray[np.uint32]) -> None:
        """Merges the words of a later contribution to R."""
        own = self._words[self.round & 1]
        np.minimum(own, words, out=own)

    def add(self, present: int, blocks: NDArray[np.int32], opcode: int) -> int:
        """Merges blocks into R.

        Args:
            present: Bitmap of the lanes that have a block.
            blocks: (k, 64) int32, one for each set bit, lowest lane first.
            opcode: A `wire.Opcode`.

        Returns:
            Additions that left the range of int32.
        """
        version = self.round & 1
        before = self.present[version]
        self.present[version] = before | present
        own = self._blocks[version]
        if present & (present + 1) == 0:
            # The usual case: lanes 0 to k-1, all of them first or all of them later.
            own = own[: len(blocks)]
            if not present & before:
                own[:] = blocks
                return 0
            if present & before == present:
                return _merge(own, blocks, opcode)
            own = self._blocks[version]
        first, later = present & ~before, present & before
        if first:
            own[_lanes(first)] = blocks[_places(present, first)]
        if not later:
            return 0
        lanes = _lanes(later)
        merged = own[lanes]
        overflows = _merge(merged, blocks[_places(present, later)], opcode)
        own[lanes] = merged
        return overflows

    def take(
        self, present: int, words: NDArray[np.uint32], blocks: NDArray[np.int32], conflict: bool
    ) -> None:
        """Puts the parent's result in the place of R's partial sum, and waits no more.

        Args:
            present: Bitmap of the lanes that have a block.
            words: (16,) uint32.
            blocks: (k, 64) int32, one for each set bit, lowest lane first.
            conflict: Whether contributions disagreed somewhere in the tree.
        """
        version = self.round & 1
        self.present[version] = present
        self._words[version] = words
        self._blocks[version][_lanes(present)] = blocks
        self.conflict[version] = conflict
        self.waiting = False

    def result(self, version: int) -> bytes:
        """Words and present blocks of a version, as they stand in a packet."""
        words = self._words[version].tobytes()
        present = self.present[version]
        if present & (present + 1) == 0:
            return words + self._blocks[version, : present.bit_count()].tobytes()
        return words + self._blocks[version, _lanes(present)].tobytes()


def _merge(own: NDArray[np.int32], blocks: NDArray[np.int32], opcode: int) -> int:
    """own := own ∘ blocks. Returns the overflows of additions."""
    if opcode == wire.Opcode.SUM:
        total = own + blocks
        # A sum overflows where its sign differs from that of both operands.
        own ^= total
        own &= total ^ blocks
        overflows = int(np.count_nonzero(own < 0)) if own.min(initial=0) < 0 else 0
        own[:] = total
        return overflows
    if opcode == wire.Opcode.MAX:
        np.maximum(own, blocks, out=own)
    elif opcode == wire.Opcode.MIN:
        np.minimum(own, blocks, out=own)
    else:
        np.minimum(own.view(np.uint32), blocks.view(np.uint32), out=own.view(np.uint32))
    return 0
