"""Collectives that move or gather tensors, and how calls are waited for."""

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from tests.conformance.script import FLOAT_SUM, sample, script


@script()
def broadcast(rank: int, size: int, backend: str) -> Any:
    """Broadcast from each rank in turn, also without waiting."""
    values = []
    for source in range(size):
        tensor = sample(rank, 5, 3)
        dist.broadcast(tensor, source)
        later = sample(rank + 10, 7)
        work = dist.broadcast(later, source, async_op=True)
        assert work is not None
        work.wait()
        values += [tensor, later]
    return values


@script(bound=FLOAT_SUM)
def reduce(rank: int, size: int, backend: str) -> Any:
    """Sum and maximum at one rank; the others' tensors are undefined."""
    total, greatest = sample(rank, 100), sample(rank, 100)
    dist.reduce(total, 0)
    dist.reduce(greatest, size - 1, op=dist.ReduceOp.MAX)
    return [total if rank == 0 else None, greatest if rank == size - 1 else None]


@script()
def gather(rank: int, size: int, backend: str) -> Any:
    """Gather at the last rank, then asynchronously at the first."""
    values = []
    for target, later in ((size - 1, False), (0, True)):
        parts = [torch.empty(4, 2) for _ in range(size)] if rank == target else None
        work = dist.gather(sample(rank, 4, 2), parts, dst=target, async_op=later)
        if later:
            work.wait()
        values.append(parts)
    return values


@script()
def scatter(rank: int, size: int, backend: str) -> Any:
    """Scatter from the last rank."""
    parts = [sample(each, 6) for each in range(size)] if rank == size - 1 else None
    tensor = torch.empty(6)
    dist.scatter(tensor, parts, src=size - 1)
    return tensor


@script()
def all_gather(rank: int, size: int, backend: str) -> Any:
    """Gather lists of tensors everywhere, of several types."""
    values = []
    for dtype in (torch.float32, torch.int64, torch.bfloat16, torch.bool):
        mine = sample(rank, 3, 5, dtype=dtype)
        parts = [torch.empty_like(mine) for _ in range(size)]
        dist.all_gather(parts, mine)
        values.append(parts)
    return values


@script()
def all_gather_into_tensor(rank: int, size: int, backend: str) -> Any:
    """Gather into one tensor, also without waiting at once."""
    mine = sample(rank, 4, 3)
    flat, later = torch.empty(4 * size, 3), torch.empty(4 * size, 3)
    dist.all_gather_into_tensor(flat, mine)
    work = dist.all_gather_into_tensor(later, mine, async_op=True)
    work.wait()
    return [flat, later]


@script(beyond_gloo=True)
def all_gather_stacked(rank: int, size: int, backend: str) -> Any:
    """Gather into one tensor with a dimension more, which torch documents: right, or refused."""
    stacked = torch.zeros(size, 4, 3)
    try:
        dist.all_gather_into_tensor(stacked, sample(rank, 4, 3))
    except (RuntimeError, ValueError):
        return "refused"
    assert torch.equal(stacked, torch.stack([sample(each, 4, 3) for each in range(size)]))
    return "refused"


@script(bound=FLOAT_SUM)
def reduce_scatter(rank: int, size: int, backend: str) -> Any:
    """Sum lists of tensors, each rank keeping its part."""
    parts = [sample(rank * 10 + each, 9) for each in range(size)]
    mine = torch.empty(9)
    dist.reduce_scatter(mine, parts)
    return mine


@script(bound=FLOAT_SUM)
def reduce_scatter_tensor(rank: int, size: int, backend: str) -> Any:
    """Sum one tensor, each rank keeping its part; integers exactly."""
    values = []
    for dtype in (torch.float32, torch.int64):
        mine = torch.empty(5, 2, dtype=dtype)
        dist.reduce_scatter_tensor(mine, sample(rank, 5 * size, 2, dtype=dtype))
        values.append(mine)
    return values


@script()
def all_to_all(rank: int, size: int, backend: str) -> Any:
    """Exchange lists of tensors."""
    sent = [sample(rank * 10 + each, 3) for each in range(size)]
    received = [torch.empty(3) for _ in range(size)]
    dist.all_to_all(received, sent)
    return received


@script()
def all_to_all_single(rank: int, size: int, backend: str) -> Any:
    """Exchange equal parts of one tensor."""
    received = torch.empty(4 * size, 2)
    dist.all_to_all_single(received, sample(rank, 4 * size, 2))
    return received


@script()
def all_to_all_single_uneven(rank: int, size: int, backend: str) -> Any:
    """Exchange unequal parts of one tensor, as experts do with tokens."""
    sent = [rank + each for each in range(size)]
    received = [each + rank for each in range(size)]
    output = torch.empty(sum(received), 3)
    dist.all_to_all_single(output, sample(rank, sum(sent), 3), received, sent)
    return output


@script(bound=FLOAT_SUM)
def coalescing_manager(rank: int, size: int, backend: str) -> Any:
    """Put several calls into one, as FSDP and users' loops do."""
    tensors = [sample(rank + 10 * each, 3 + each) for each in range(4)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    mine = [sample(rank + 50 * each, 4) for each in range(3)]
    gathered = [torch.empty(4 * size) for _ in mine]
    with dist._coalescing_manager(async_ops=True) as manager:
        for output, tensor in zip(gathered, mine, strict=True):
            dist.all_gather_into_tensor(output, tensor)
    manager.wait()
    parts = [torch.empty(4) for _ in mine]
    with dist._coalescing_manager():
        for part, output in zip(parts, gathered, strict=True):
            dist.reduce_scatter_tensor(part, output)
    return [tensors, gathered, parts]


@script(bound=FLOAT_SUM)
def coalesced_lists(rank: int, size: int, backend: str) -> Any:
    """Call the list forms directly."""
    tensors = [sample(rank + 10 * each, 2 + each) for each in range(3)]
    dist.all_reduce_coalesced(tensors)
    mine = [sample(rank, 3), sample(rank + 1, 2, 2)]
    lists = [[torch.empty_like(each) for each in mine] for _ in range(size)]
    dist.all_gather_coalesced(lists, mine)
    return [tensors, lists]


@script()
def barrier(rank: int, size: int, backend: str) -> Any:
    """Meet, also without waiting at once, and by the group's own method."""
    dist.barrier()
    work = dist.barrier(async_op=True)
    assert work is not None
    work.wait()
    dist.distributed_c10d._get_default_group().barrier().wait()
    return work.is_completed()


@script()
def monitored_barrier(rank: int, size: int, backend: str) -> Any:
    """Meet under rank 0's eyes."""
    dist.monitored_barrier()
    dist.monitored_barrier(timeout=timedelta(seconds=10), wait_all_ranks=True)
    return True


@script(bound=FLOAT_SUM)
def async_storm(rank: int, size: int, backend: str) -> Any:
    """Start two hundred operations of two kinds, and wait for them out of order."""
    tensors = [sample(rank + each, 1 + each) for each in range(200)]
    works = [
        dist.all_reduce(tensor, async_op=True)
        if index % 3
        else dist.broadcast(tensor, index % size, async_op=True)
        for index, tensor in enumerate(tensors)
    ]
    for work in reversed(works):
        assert work is not None
        work.wait()
    return tensors


@script(bound=FLOAT_SUM)
def polling(rank: int, size: int, backend: str) -> Any:
    """Poll `is_completed` and compute meanwhile."""
    tensor = sample(rank, 10_000)
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    while not work.is_completed():
        torch.ones(10).sum()
    work.wait()
    return [tensor, work.is_success()]


@script(bound=FLOAT_SUM)
def future_chain(rank: int, size: int, backend: str) -> Any:
    """Chain `then` on a Work's future, twice, and read its value."""
    tensor = sample(rank, 50)
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    first = work.get_future().then(lambda future: [each / size for each in future.value()])
    second = first.then(lambda future: future.value()[0] * 2)
    return [second.wait(), len(first.value())]


@script(bound=FLOAT_SUM)
def future_all(rank: int, size: int, backend: str) -> Any:
    """Collect the futures of several operations and wait for all."""
    tensors = [sample(rank + each, 30) for each in range(5)]
    futures = []
    for tensor in tensors:
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        futures.append(work.get_future())
    return [found[0] for found in torch.futures.wait_all(futures)]


@script(bound=FLOAT_SUM)
def work_result(rank: int, size: int, backend: str) -> Any:
    """Read a Work's result, wait twice, and with a timeout."""
    tensor = sample(rank, 20)
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    work.wait(timedelta(seconds=10))
    work.wait()
    return [work.result()[0], work.is_completed()]
