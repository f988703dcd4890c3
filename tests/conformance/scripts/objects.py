"""Python objects between ranks, errors among them."""

import pickle
from typing import Any

import torch
import torch.distributed as dist

from tests.conformance.script import sample, script


@script()
def all_gather_object(rank: int, size: int, backend: str) -> Any:
    """Gather dictionaries of different lengths everywhere."""
    found: list[Any] = [None] * size
    dist.all_gather_object(found, {"rank": rank, "text": "x" * 100 * rank, "t": sample(rank, 3)})
    return found


@script()
def broadcast_object_list(rank: int, size: int, backend: str) -> Any:
    """Broadcast a configuration from rank 0."""
    objects: list[Any] = [{"lr": 0.1}, "name", None, [1, 2]] if rank == 0 else [None] * 4
    dist.broadcast_object_list(objects, src=0)
    return objects


@script()
def gather_object(rank: int, size: int, backend: str) -> Any:
    """Gather metrics at the last rank."""
    found: list[Any] | None = [None] * size if rank == size - 1 else None
    dist.gather_object(("metrics", rank * 1.5), found, dst=size - 1)
    return found


@script()
def scatter_object_list(rank: int, size: int, backend: str) -> Any:
    """Scatter shards of work from rank 0."""
    shards = [{"shard": each, "of": list(range(each))} for each in range(size)]
    mine: list[Any] = [None]
    dist.scatter_object_list(mine, shards if rank == 0 else [None] * size, src=0)
    return mine


@script()
def send_object_list(rank: int, size: int, backend: str) -> Any:
    """Send objects from rank to rank."""
    if rank == 0:
        dist.send_object_list(["stage", {"micro": 3}], dst=1)
        return None
    objects: list[Any] = [None, None]
    if rank == 1:
        dist.recv_object_list(objects, src=0)
    return objects


@script()
def large_objects(rank: int, size: int, backend: str) -> Any:
    """Gather two megabytes from each rank."""
    found: list[Any] = [None] * size
    dist.all_gather_object(found, bytes([rank]) * (2 << 20))
    return [(each[0], len(each)) for each in found]


@script(beyond_gloo=True)
def errors_are_pickled(rank: int, size: int, backend: str) -> Any:
    """Send a backend's error to another rank, as launchers and test runners do."""
    try:
        dist.all_reduce(torch.ones(2), op=dist._make_nccl_premul_sum(2.0))
    except (RuntimeError, ValueError) as error:
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error), repr(again)
        return "RuntimeError" if isinstance(again, RuntimeError) else "ValueError"
    raise AssertionError("it was not refused")


@script()
def groups_are_not_copied(rank: int, size: int, backend: str) -> Any:
    """Copy a group, which belongs to one process, by mistake."""
    import copy

    group = dist.distributed_c10d._get_default_group()
    kinds = []
    for each in (lambda: pickle.dumps(group), lambda: copy.deepcopy(group)):
        try:
            each()
            kinds.append("copied")
        except (TypeError, RuntimeError, AttributeError, pickle.PicklingError):
            kinds.append("refused")
    return kinds
