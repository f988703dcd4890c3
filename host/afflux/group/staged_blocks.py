"""All-reduces of tensors on a device of which most blocks are zeros: only the others come down.

    device   find blocks ─► flags          take the union's ─► copy down ─┐     ┌─► copy up ─► put
    host                 └─► ranks agree on the union of blocks ┘         └ sum ┘

The union's blocks, one after the other, are an ordinary tensor on the device, which goes in pieces
as any other. A block outside the union is zero at all ranks, and so is its sum: it stays as it is.
An element that a rank has not in the union is a zero of its own, as in the whole tensor. So the
bits are those of the whole tensor's sum.

To look takes a kernel that reads the tensor, a flag for each block down, and one or two small
operations of the group. So tensors of one piece are not looked at; and where the union was more
than half of a tensor, its kind is left alone for 1, 2, 4, … and at most 64 calls. That follows from
what all ranks know, hence they look in the same calls.

Tested: `tests/host/test_present_blocks.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from afflux.group.call.collectives import Asked, Part
from afflux.group.call.tensors import dtype_name
from afflux.group.reducers.sparse_sums import SparseSums
from afflux.group.staging.blocks import Blocks
from afflux.group.staging.copies import Copies, Patience, on_stream
from afflux.sparse.agreement import agree, count_rows

__all__ = ["StagedBlocks", "Union"]

_LEFT_ALONE_MOST = 64
"""Calls in a row at most, of a kind of which most blocks were present."""

_KINDS_MAX = 4096

_ITEM_BYTES = (1, 2, 4, 8)


@dataclass(frozen=True)
class Union:
    """The blocks of a tensor on a device that any rank has.

    Attributes:
        part: Their sum, of a tensor on the device; None if no rank has any.
        put: Queues their copies to their places in the tensor, in the current stream.
    """

    part: Part | None
    put: Callable[[], None]


@dataclass
class _Kind:
    """The past of the calls of one kind.

    Attributes:
        dense: How often in a row the union was more than half.
        left_alone: Calls that are not looked at any more.
    """

    dense: int = 0
    left_alone: int = 0


class StagedBlocks:
    """The unions of one group.

    Args:
        sums: The group's.
        setting: AFFLUX_DEVICE_BLOCKS: "auto"; "on" to look at each call, or "off".
    """

    def __init__(self, sums: SparseSums, setting: str) -> None:
        self._sums = sums
        self._setting = setting
        self._kinds: dict[tuple[torch.dtype, int, str], _Kind] = {}
        self._counts = dict.fromkeys(("looked", "taken", "blocks", "blocks_taken"), 0)

    def statistics(self) -> dict[str, Any]:
        """Return what has been done, by name; see `afflux.statistics`."""
        return dict(self._counts)

    def due(self, part: Part) -> bool:
        """Return whether to look at a collective of several pieces; the same at all ranks."""
        asked = part.asked
        if self._setting == "off" or asked.collective != "all_reduce":
            return False
        if asked.dtype.itemsize not in _ITEM_BYTES:
            return False
        kind = self._kind(part)
        if self._setting == "on" or not kind.left_alone:
            return True
        kind.left_alone -= 1
        return False

    def union(self, part: Part, copies: Copies, patience: Patience) -> Union | None:
        """Find the blocks that any rank has; all ranks call it, in the group's thread.

        Args:
            part: An all-reduce, in place, of a contiguous tensor on the device.
            copies: Of the device. The stream down may read the tensor.
            patience: The call's.

        Returns:
            Them; None if they are more than half of all, or are thought to be.

        Raises:
            DeadlineExceeded: The device has not come to the tensor in time.
            AffluxError: As for any all-reduce.
        """
        (tensor,) = part.outputs
        blocks = Blocks(tensor)
        with on_stream(copies.down):
            flags = blocks.present()
        (host,), arrived = copies.begin([flags])
        patience.wait(arrived)
        numbers = self._agreed(part, np.flatnonzero(host.numpy()), blocks, patience)
        kind = self._kind(part)
        self._counts["looked"] += 1
        if numbers is None:
            kind.left_alone = min(1 << kind.dense, _LEFT_ALONE_MOST)
            kind.dense += 1
            return None
        kind.dense = 0
        self._counts["taken"] += 1
        self._counts["blocks"] += blocks.count
        self._counts["blocks_taken"] += len(numbers)
        if not len(numbers):
            return Union(None, lambda: None)
        return self._taken(part.asked, numbers, blocks, copies)

    def _kind(self, part: Part) -> _Kind:
        # Not by shapes, in which ranks may differ.
        key = part.asked.dtype, part.small.numel(), part.asked.reduction
        if key not in self._kinds and len(self._kinds) >= _KINDS_MAX:
            self._kinds.clear()
        return self._kinds.setdefault(key, _Kind())

    def _agreed(
        self, part: Part, own: np.ndarray, blocks: Blocks, patience: Patience
    ) -> np.ndarray | None:
        """Return the numbers of the blocks that any rank has; None if they are most."""
        asked, sums = part.asked, self._sums
        sums.limit(patience.left_s)
        counts = count_rows(len(own), sums, sums.kinds)
        if not sum(counts):
            return own
        if 2 * max(counts) > blocks.count:
            return None
        elements = part.small.numel()
        text = f"{asked.reduction} {dtype_name(asked.dtype)} ({elements},), blocks on a device"
        of_blocks = torch.from_numpy(own), counts, blocks.count, blocks.width
        agreed = agree(
            text, *of_blocks, asked.dtype, asked.reduction, sums, sums.kinds, may_be_dense=False
        )
        assert agreed.union is not None
        numbers = agreed.union.numbers()
        return None if 2 * len(numbers) > blocks.count else numbers

    def _taken(self, asked: Asked, numbers: np.ndarray, blocks: Blocks, copies: Copies) -> Union:
        """Take blocks out, in the stream down."""
        # Some zeros behind them: sizes that differ little are then the same.
        elements = len(numbers) * blocks.width
        elements = self._sums.capacity(elements, asked.dtype.itemsize)
        elements = -(-elements // blocks.width) * blocks.width
        ends_short = blocks.ends_short(int(numbers[-1]))
        there = copies.give(torch.from_numpy(numbers))
        with on_stream(copies.down):
            room = torch.empty(elements, dtype=asked.dtype, device=there.device)
            blocks.take(there, ends_short, room)
        for each in (there, room):
            # Else the allocator might give them away before they have been put back.
            each.record_stream(copies.up)
        summed = Asked("all_reduce", asked.dtype, (elements,), asked.reduction)
        return Union(Part(summed, [], [room]), lambda: blocks.put(there, ends_short, room))
