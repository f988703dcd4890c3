"""The collectives that `afflux bench` times: their buffers, one call, and what must come out.

Sizes and counts are those of nccl-tests: the size of all_gather and reduce_scatter is that of the
larger buffer, their count that of one rank's part, which is a multiple of 16 bytes.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from afflux.commands.bench.contenders import Contender
from afflux.commands.bench.expected import wrong_elements
from afflux.commands.bench.inputs import Inputs

__all__ = ["COLLECTIVES", "Collective", "Trial", "prepare", "result_inputs"]

_ALIGNMENT_BYTES = 16


@dataclass(frozen=True)
class Collective:
    """The facts about a collective that are known before anything runs.

    Attributes:
        name: In the command line and in rows.
        program: The program of nccl-tests.
        bus_factor: Busbw by algbw, for a number of ranks.
        reduces: Whether it has a reduction.
        parts: Whether one of its buffers consists of a part for each rank.
        copies: Whether out of place is a copy and then a call in place.
        root: As nccl-tests shows it; -1: none.
        sized: Whether it has data at all.
    """

    name: str
    program: str
    bus_factor: Callable[[int], float]
    reduces: bool = False
    parts: bool = False
    copies: bool = False
    root: int = -1
    sized: bool = True

    def count(self, size: int, itemsize: int, ranks: int) -> int:
        """Return the elements that nccl-tests would show for `size` bytes; at least 1 if sized."""
        if not self.sized:
            return 0
        if not self.parts:
            return max(1, size // itemsize)
        step = max(1, _ALIGNMENT_BYTES // itemsize)
        return max(1, size // itemsize // ranks // step * step)

    def bytes(self, count: int, itemsize: int, ranks: int) -> int:
        """Return the size that nccl-tests would show for a count."""
        return count * itemsize * (ranks if self.parts else 1)


def _share(ranks: int) -> float:
    return (ranks - 1) / ranks


COLLECTIVES = {
    each.name: each
    for each in (
        Collective(
            "all_reduce", "all_reduce_perf", lambda n: 2 * _share(n), reduces=True, copies=True
        ),
        Collective("broadcast", "broadcast_perf", lambda _: 1.0, copies=True, root=0),
        Collective("all_gather", "all_gather_perf", _share, parts=True),
        Collective("reduce_scatter", "reduce_scatter_perf", _share, reduces=True, parts=True),
        Collective("barrier", "barrier_perf", lambda _: 0.0, sized=False),
    )
}


@dataclass
class Trial:
    """A collective with buffers at this rank, for one contender.

    Attributes:
        call: One call.
        restore: Makes the data what they were before the first call.
        check: Returns how many elements of this rank's result are wrong after `restore` and one
            call.
        result: The tensor that the call writes.
        source: The tensor that it reads; `result` itself, or a part of it, if it works in place.
        batch: Most calls between restorations; 0: any number.
        same_at_all: Whether all ranks get the same result.
    """

    call: Callable[[], object]
    restore: Callable[[], object]
    check: Callable[[], int]
    result: torch.Tensor
    source: torch.Tensor
    batch: int = 0
    same_at_all: bool = True

    def wrong(self) -> int:
        """Make a call with fresh data; return how many elements of this rank's result are wrong."""
        self.restore()
        self.call()
        return self.check()


def result_inputs(inputs: Inputs, part: int) -> Inputs:
    """Return what the ranks contribute to one rank's part of a reduce_scatter."""
    return replace(inputs, seed=(inputs.seed << 8) + part + 1)


def prepare(
    collective: Collective, contender: Contender, inputs: Inputs, op: str, rank: int, in_place: bool
) -> Trial:
    """Make the buffers of a collective and what is done with them. Collective if reachable.

    Args:
        collective: One of COLLECTIVES.
        contender: The owner of the calls.
        inputs: Of `Collective.count` elements.
        op: "sum", "avg", "max" or "min", where it reduces.
        rank: Own rank.
        in_place: Source and result share memory, as nccl-tests means it.
    """
    return _PREPARE[collective.name](contender, inputs, op, rank, in_place)


def _all_reduce(contender: Contender, inputs: Inputs, op: str, rank: int, in_place: bool) -> Trial:
    tensor = contender.empty(inputs.count, inputs.dtype)
    source = torch.empty(inputs.count, dtype=inputs.dtype)
    inputs.fill(rank, source)

    def call() -> None:
        contender.all_reduce(tensor, op)

    def copy_and_call() -> None:
        tensor.copy_(source)
        contender.all_reduce(tensor, op)

    def check() -> int:
        return wrong_elements(tensor, inputs, op, contender.of_engine)

    def restore() -> None:
        tensor.copy_(source)

    if in_place:
        return Trial(call, restore, check, tensor, tensor, inputs.calls_in_place(op))
    return Trial(copy_and_call, restore, check, tensor, source)


def _broadcast(contender: Contender, inputs: Inputs, _: str, rank: int, in_place: bool) -> Trial:
    root = COLLECTIVES["broadcast"].root
    tensor = contender.empty(inputs.count, inputs.dtype)
    source = torch.empty(inputs.count, dtype=inputs.dtype)
    inputs.fill(rank, source)

    def restore() -> None:
        tensor.copy_(source)

    def call() -> None:
        contender.broadcast(tensor, root)

    def copy_and_call() -> None:
        if rank == root:
            tensor.copy_(source)
        contender.broadcast(tensor, root)

    def check() -> int:
        return sum(
            int((tensor[where] != inputs.piece(root, where)).sum()) for where in inputs.pieces()
        )

    if in_place:
        return Trial(call, restore, check, tensor, tensor)
    return Trial(copy_and_call, restore, check, tensor, source)


def _all_gather(contender: Contender, inputs: Inputs, _: str, rank: int, in_place: bool) -> Trial:
    count = inputs.count
    whole = contender.empty(count * inputs.ranks, inputs.dtype)
    own = whole[rank * count : (rank + 1) * count]
    part = own if in_place else contender.empty(count, inputs.dtype)
    source = torch.empty(count, dtype=inputs.dtype)
    inputs.fill(rank, source)

    def restore() -> None:
        # Not what comes out: a call that did nothing would be seen.
        whole.fill_(-1)
        part.copy_(source)

    def call() -> None:
        contender.all_gather(whole, part)

    def check() -> int:
        return sum(
            int((whole[each * count :][where] != inputs.piece(each, where)).sum())
            for each in range(inputs.ranks)
            for where in inputs.pieces()
        )

    return Trial(call, restore, check, whole, part)


def _reduce_scatter(
    contender: Contender, inputs: Inputs, op: str, rank: int, in_place: bool
) -> Trial:
    count, ranks = inputs.count, inputs.ranks
    of_part = [result_inputs(inputs, each) for each in range(ranks)]
    whole = contender.empty(count * ranks, inputs.dtype)
    own = whole[rank * count : (rank + 1) * count]
    part = own if in_place else contender.empty(count, inputs.dtype)
    source = torch.empty(count * ranks, dtype=inputs.dtype)
    for each, contributed in enumerate(of_part):
        contributed.fill(rank, source[each * count : (each + 1) * count])

    def restore() -> None:
        part.fill_(-1)
        whole.copy_(source)

    def call() -> None:
        contender.reduce_scatter(part, whole, op)

    def check() -> int:
        # To the bit, parts would have to begin where blocks do.
        return wrong_elements(part, of_part[rank], op, contender.of_engine, to_the_bit=False)

    batch = inputs.calls_in_place(op) if in_place else 0
    return Trial(call, restore, check, part, whole, batch, same_at_all=False)


def _barrier(contender: Contender, inputs: Inputs, _: str, rank: int, in_place: bool) -> Trial:
    nothing = torch.empty(0)

    def check() -> int:
        # One rank is late; nobody may leave before it has come. All clocks of a host are one.
        times = torch.zeros(2, dtype=torch.float64)
        if rank == inputs.seed % inputs.ranks:
            time.sleep(0.01)
        times[0] = time.monotonic()
        contender.barrier()
        times[1] = time.monotonic()
        found = [torch.empty_like(times) for _ in range(inputs.ranks)]
        dist.all_gather(found, times)
        return int(times[1] < max(each[0] for each in found))

    return Trial(contender.barrier, lambda: None, check, nothing, nothing, same_at_all=False)


_PREPARE: dict[str, Callable[[Any, Inputs, str, int, bool], Trial]] = {
    "all_reduce": _all_reduce,
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "barrier": _barrier,
}
