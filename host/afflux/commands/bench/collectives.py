"""The collectives that `afflux bench` times: their buffers, one call, and what must come out."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from afflux.commands.bench.catalogue import COLLECTIVES, Collective
from afflux.commands.bench.contenders import Contender
from afflux.commands.bench.expected import wrong_elements
from afflux.commands.bench.inputs import Inputs

__all__ = ["Trial", "prepare", "result_inputs"]


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
        return wrong_elements(part, of_part[rank], op, contender.of_engine)

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
