"""The blocks of a tensor on a device that have a bit set: found there, taken out, and put back.

A block has 256 bytes of the tensor, from its beginning on, as on the wire (`docs/protocol.md`); the
last one may be short. It is present if any bit is set, so −0 and NaN are present, and the type of
the elements does not matter: they are read as integers of their size, and never calculated with.
Exponents are not looked for: the worker needs those of the sum's own blocks, which are others, and
finds them while it copies them into packets.

Nothing here waits for the device.

Tested: `tests/host/test_present_blocks.py`, and on a GPU by `tests/gpu/block_scan.py`.
"""

import functools
import logging
from collections.abc import Callable

import torch

from afflux.group.staging.copies import on_stream
from afflux_hdl.contract import wire

__all__ = ["Blocks", "Scan", "agrees", "scan_by_torch"]

_log = logging.getLogger("afflux")

Scan = Callable[[torch.Tensor, torch.Tensor], None]
"""Writes for each row of a contiguous matrix of integers whether a bit of it is set.

Its arguments are the matrix, of shape (rows, integers of a block), and the flags, bool, of shape
(rows,). It is queued in the current stream.
"""

_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int32}
"""By bytes of an element, the integers by which it is read: no larger ones, for alignment."""

_TRITON_DEVICES = ("cuda", "xpu")


class Blocks:
    """The blocks of one tensor.

    Each method queues its work in the calling thread's current stream.

    Args:
        tensor: Contiguous; with elements of 1, 2, 4 or 8 bytes.

    Attributes:
        count: How many blocks it has.
        width: Elements of a block.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        # .data: a collective is not a step of autograd and leaves version counters alone.
        self._words = tensor.data.view(-1).view(_WORDS[tensor.element_size()])
        self.width = wire.BLOCK_BYTES // tensor.element_size()
        self._block_words = wire.BLOCK_BYTES // self._words.element_size()
        whole, rest = divmod(self._words.numel(), self._block_words)
        self._whole = whole
        self._rest = self._words[whole * self._block_words :]
        self._rows = self._words[: whole * self._block_words].view(whole, self._block_words)
        self.count = whole + (rest > 0)

    def present(self) -> torch.Tensor:
        """Return which blocks are present: bool, of shape (count,), on the device."""
        with torch.inference_mode(self._words.is_inference()):
            flags = torch.empty(self.count, dtype=torch.bool, device=self._words.device)
            if self._whole:
                _scan_on(self._words.device)(self._rows, flags[: self._whole])
            if self._rest.numel():
                flags[self._whole :] = self._rest.ne(0).any()
            return flags

    def take(self, numbers: torch.Tensor, ends_short: bool, room: torch.Tensor) -> None:
        """Copy blocks to the beginning of a room; the rest of it becomes zeros.

        Args:
            numbers: Of the blocks, ascending; int64, on the device.
            ends_short: Whether the last of them is the tensor's short one.
            room: Flat, of the tensor's dtype; at least as many blocks.
        """
        words = room.view(self._words.dtype)
        whole, rows, behind = self._split(numbers, ends_short, words)
        with torch.inference_mode(self._words.is_inference()):
            torch.index_select(self._rows, 0, numbers[:whole], out=rows)
            behind.zero_()
            if ends_short:
                behind[: self._rest.numel()].copy_(self._rest)

    def put(self, numbers: torch.Tensor, ends_short: bool, room: torch.Tensor) -> None:
        """Copy the blocks of a room to their places in the tensor; see `take`."""
        words = room.view(self._words.dtype)
        whole, rows, behind = self._split(numbers, ends_short, words)
        # A tensor that was made in inference mode may be written only there.
        with torch.inference_mode(self._words.is_inference()):
            self._rows.index_copy_(0, numbers[:whole], rows)
            if ends_short:
                self._rest.copy_(behind[: self._rest.numel()])

    def ends_short(self, last: int) -> bool:
        """Return whether the block of this number is shorter than others."""
        return last >= self._whole

    def _split(
        self, numbers: torch.Tensor, ends_short: bool, words: torch.Tensor
    ) -> tuple[int, torch.Tensor, torch.Tensor]:
        """Return the number of whole blocks, a room's rows for these, and what is behind them."""
        whole = numbers.numel() - ends_short
        end = whole * self._block_words
        return whole, words[:end].view(whole, self._block_words), words[end:]


def scan_by_torch(rows: torch.Tensor, flags: torch.Tensor) -> None:
    """Scan by a kernel of torch's, on any device; see `Scan`."""
    torch.any(rows, 1, out=flags)


@functools.cache
def _scan_on(device: torch.device) -> Scan:
    """Return what scans on a device: the kernel in Triton if there is Triton, and it is right."""
    if device.type not in _TRITON_DEVICES:
        return scan_by_torch
    try:
        # CUDA's wheels of torch bring it; nothing else does.
        from afflux.group.staging.triton_scan import scan

        # In another stream than the group's, which may wait for a caller's that does not end.
        with on_stream(torch.Stream(device=device)):
            right = agrees(scan, device)
        if right:
            return scan
        reason = "its kernel and torch's find other blocks"
    except Exception as error:
        # No Triton, no C compiler for its launcher, or a device that it does not know.
        reason = f"{type(error).__name__}: {error}"
    _log.warning("%s: blocks are found by torch's kernels, not by Triton's: %s", device, reason)
    return scan_by_torch


def agrees(scan: Scan, device: torch.device) -> bool:
    """Return whether a scan finds what torch finds, of a few hundred blocks with one bit each.

    It waits for the current stream, once for each device.
    """
    for dtype in sorted(set(_WORDS.values()), key=str):
        width = wire.BLOCK_BYTES // dtype.itemsize
        host = torch.zeros(3 * width + 1, width, dtype=dtype)
        for word in range(width):
            # Each word's sign bit in one row, its lowest bit in another; each third row is zeros.
            host[3 * word, word] = torch.iinfo(dtype).min
            host[3 * word + 1, word] = 1
        rows = host.to(device)
        flags = torch.empty(len(host), dtype=torch.bool, device=device)
        scan(rows, flags)
        if not torch.equal(flags.cpu(), host.ne(0).any(1)):
            return False
    return True
