"""Correctly rounded sums of floats through Gloo, which moves them only: its own round every step.

There are two ways, of which the first takes half the steps, and the second, as a ring, 2(N-1)/N of
the tensor:

    gathered    every rank gets the elements of all others, and sums them
    scattered   rank r gets piece r of all others' elements, sums it, and sends the others its sums

A large tensor goes chunk by chunk: one is summed while others move. All that ranks choose follows
from sizes that are the same at all of them.
"""

import itertools
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from afflux.group.call.collectives import Part, parts_of
from afflux.group.call.description import reduction_of, tensors_in
from afflux.group.call.tensors import ENGINE_DTYPES, dtype_name, plain
from afflux_drivers import _native
from afflux_drivers.c_api import Collective
from afflux_drivers.collectives.call import GroupCall

__all__ = ["ExactSums", "Move", "Steps", "exact_sums", "few_chunks", "summed_exactly"]

_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.complex64)
_REDUCTIONS = ("sum", "avg")

_SMALL_BYTES = 64 << 10
"""A rank is sent so many bytes rather than waiting for a second step."""

_LEAST_BYTES, _MIDDLE_BYTES, _MOST_BYTES = 256 << 10, 1 << 20, 4 << 20
"""Of a chunk: a half up to the second, then an eighth. Gloo tells the other end that it may send on
the connection that its own data takes, so that a single large move goes one way after the other."""


class Move(NamedTuple):
    """An all-to-all of flat tensors.

    Attributes:
        received: Is written.
        sent: Is read.
        received_sizes: Elements from each rank.
        sent_sizes: Elements to each rank.
    """

    received: torch.Tensor
    sent: torch.Tensor
    received_sizes: list[int]
    sent_sizes: list[int]


Steps = Generator[Move, None, None]
"""Goes on when its last move is over."""


class ExactSums(NamedTuple):
    """A call, as moves and sums.

    Attributes:
        steps: Of each chunk. Chunks may be carried out side by side, if all ranks begin their moves
            in the same order.
        finish: Gives the caller's tensors the results; call it when all is over.
    """

    steps: Iterator[Steps]
    finish: Callable[[], None]


def summed_exactly(dtype: torch.dtype, reduction: str) -> bool:
    """Return whether such a reduction is one of these sums."""
    return reduction in _REDUCTIONS and dtype in _DTYPES


def few_chunks(method: str, arguments: tuple[Any, ...], size: int) -> tuple[str, GroupCall | None]:
    """Return the way of an all-reduce of a chunk or two, with a chunk's sum, for C++.

    The way of other calls is "".
    """
    if method != "allreduce" or len(arguments[0]) != 1 or size < 2:
        return "", None
    (tensor,) = arguments[0]
    reduction = reduction_of(arguments)
    if not summed_exactly(tensor.dtype, reduction) or tensor.is_complex():
        return "", None
    if not 0 < tensor.nbytes <= 2 * _MIDDLE_BYTES:
        return "", None
    small = _is_small(tensor.nbytes, size)
    chunk = tensor.numel() if small else _chunk(tensor.numel(), tensor.element_size())
    of_chunk = Collective.ALL_REDUCE, dtype_name(tensor.dtype), reduction, (chunk,)
    return "gathered" if small else "scattered", GroupCall.reducing(*of_chunk)


def _is_small(nbytes: int, size: int) -> bool:
    return (size - 1) * nbytes <= _SMALL_BYTES


def _chunk(count: int, element_size: int) -> int:
    """Return the elements of a chunk, of so many."""
    limits = _LEAST_BYTES, _MIDDLE_BYTES, _MOST_BYTES
    least, middle, most = (max(1, each // element_size) for each in limits)
    return max(least, min(middle, -(-count // 2)), min(most, count // 8))


def exact_sums(method: str, arguments: tuple[Any, ...], rank: int, size: int) -> ExactSums | None:
    """Return the sums that a call asks for; None if it asks for something else.

    Args:
        method: Of c10d's `Backend`; its first argument has what it writes.
        arguments: Its arguments.
        rank: Own rank.
        size: Ranks of the group.

    Raises:
        ValueError: The tensors do not fit one another.
    """
    if reduction_of(arguments) not in _REDUCTIONS:
        return None
    root = None
    if method == "reduce":
        root = arguments[-1].rootRank
        method = "allreduce"
        if len(arguments[0]) != 1 or not 0 <= root < size:
            # Gloo has an error for it.
            return None
    if any(each.layout is not torch.strided for each in tensors_in(arguments)):
        return None
    parts = parts_of(method, arguments, size)
    if not parts or not all(summed_exactly(p.asked.dtype, p.asked.reduction) for p in parts):
        return None
    jobs = [_Job(part, rank, size, root) for part in parts]

    def finish() -> None:
        for job in jobs:
            job.finish()

    return ExactSums(itertools.chain.from_iterable(job.steps() for job in jobs), finish)


class _Job:
    """One collective of a call, at one rank.

    Args:
        part: The collective with its tensors.
        rank: Own rank.
        size: Ranks of the group.
        root: The only rank that gets the sums of an all-reduce; None if all do.
    """

    def __init__(self, part: Part, rank: int, size: int, root: int | None) -> None:
        self._rank = rank
        self._size = size
        self._root = root
        self._average = part.asked.reduction == "avg"
        (self._own,) = part.outputs
        self._result = _flat(self._own)
        self._inputs = [_flat(each) for each in part.inputs]
        self._dtype = int(ENGINE_DTYPES[self._result.dtype])
        self._scale = _native.average_scale(size) if self._average else 0

    def steps(self) -> Iterator[Steps]:
        """Yield those of each chunk."""
        result, size = self._result, self._size
        if not result.numel():
            return
        count, element_size = result.numel(), result.element_size()
        if not self._inputs:
            if size == 1 or (self._root is None and _is_small(result.nbytes, size)):
                yield self._gathered([result] * size, result)
                return
            for part in result.split(_chunk(count, element_size)):
                yield self._scattered(part)
            return
        pieces = self._inputs
        if len(pieces) < size:
            pieces = [pieces[0][rank * count :][:count] for rank in range(size)]
        chunk = max(1, _chunk(count * size, element_size) // size)
        for start in range(0, count, chunk):
            part = result[start : start + chunk]
            yield self._gathered([each[start : start + chunk] for each in pieces], part)

    def finish(self) -> None:
        """Give the caller's tensor the result, unless it has it."""
        own, result = self._own, self._result
        if result.data_ptr() == own.data_ptr() or self._root not in (None, self._rank):
            return
        if own.is_complex():
            result = torch.view_as_complex(result.view(-1, 2))
        # A tensor that was made in inference mode may be written only there.
        with torch.inference_mode(own.is_inference()):
            own.data.copy_(result.view(own.shape))

    def _gathered(self, pieces: list[torch.Tensor], out: torch.Tensor) -> Steps:
        """Send each of the others its piece, and sum what comes with the own one."""
        count = out.numel()
        others = pieces[: self._rank] + pieces[self._rank + 1 :]
        received = out.new_empty(count * len(others))
        if others:
            sent = others[0] if len(others) == 1 else torch.cat(others)
            sizes = [count] * self._size
            sizes[self._rank] = 0
            yield Move(received, sent, sizes, sizes)
        self._sum([pieces[self._rank], *received.view(len(others), count)], out)

    def _scattered(self, part: torch.Tensor) -> Steps:
        """Sum one piece, and let the others have it, or the root."""
        size = self._size
        sizes = [len(each) for each in part.tensor_split(size)]
        own = sizes[self._rank]
        pieces = part.new_empty(size * own)
        yield Move(pieces, part, [own] * size, sizes)
        if own:
            arrays = [_bits(each) for each in pieces.split(own)]
            _native.exact_sums_in_place(self._dtype, self._scale, True, arrays)
            if self._average:
                _native.divide_sums(self._dtype, size, _bits(pieces))
        if self._root is None:
            yield Move(part, pieces, sizes, [own] * size)
            return
        to_root = [own if rank == self._root else 0 for rank in range(size)]
        if self._rank == self._root:
            yield Move(part, pieces[:own], sizes, to_root)
        else:
            yield Move(part[:0], pieces[:own], [0] * size, to_root)

    def _sum(self, parts: list[torch.Tensor], out: torch.Tensor) -> None:
        arrays = [_bits(each) for each in parts]
        _native.exact_sums(self._dtype, self._scale, True, arrays, _bits(out))
        if self._average:
            _native.divide_sums(self._dtype, self._size, _bits(out))


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements one after the other; those of a complex tensor are twice as many."""
    data = plain(tensor.data)
    return (torch.view_as_real(data) if data.is_complex() else data).reshape(-1)


def _bits(flat: torch.Tensor) -> np.ndarray:
    # numpy has no bfloat16.
    return flat.view(torch.int32 if flat.element_size() == 4 else torch.int16).numpy()
