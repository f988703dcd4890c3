"""Groups: subgroups, splits, devices, meshes, names, and one after the other."""

import contextlib
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, PrefixStore
from torch.distributed.device_mesh import init_device_mesh

from tests.conformance.script import FLOAT_SUM, refusal, sample, script


@script(bound=FLOAT_SUM)
def new_group(rank: int, size: int, backend: str) -> Any:
    """Make groups of some ranks, and use them side by side with the whole."""
    pairs = [dist.new_group([each, each + 1]) for each in range(0, size, 2)]
    assert pairs[rank // 2] is not None
    tensor, whole = sample(rank, 20), sample(rank, 20)
    dist.all_reduce(tensor, group=pairs[rank // 2])
    dist.all_reduce(whole)
    alone = dist.new_group([rank], use_local_synchronization=True)
    dist.all_reduce(whole, group=alone)
    return [tensor, whole, dist.get_world_size(pairs[rank // 2])]


@script(bound=FLOAT_SUM)
def new_subgroups(rank: int, size: int, backend: str) -> Any:
    """Divide the ranks evenly, and by a list."""
    mine, _ = dist.new_subgroups(2)
    tensor = sample(rank, 8)
    dist.all_reduce(tensor, group=mine)
    lists = [list(range(each, size, 2)) for each in range(2)]
    odd, _ = dist.new_subgroups_by_enumeration(lists)
    other = sample(rank, 8)
    dist.all_reduce(other, group=odd)
    return [tensor, other]


@script(alone=True)
def split_group(rank: int, size: int, backend: str) -> Any:
    """Split a group into halves, and use both the halves and the whole.

    Alone, as Gloo crashes here in a process that has destroyed a group before.
    """
    half = size // 2
    ranks = list(range(half)) if rank < half else list(range(half, size))
    # `dist.split_group` asks for an accelerator first, and then calls this.
    world = dist.distributed_c10d._get_default_group()
    refused = refusal(lambda: dist.split_group(split_ranks=[ranks]))
    mine = world.split_group(ranks, timedelta(seconds=20), None, f"half-{ranks[0]}", "half")
    tensor = torch.ones(3)
    mine.allreduce([tensor]).wait()
    after = torch.ones(1)
    dist.all_reduce(after)
    return [refused, tensor, after]


@script()
def names_and_ranks(rank: int, size: int, backend: str) -> Any:
    """Ask a group for its ranks, description, timeout and numbers of ranks in it."""
    group = dist.new_group(list(reversed(range(size))), group_desc="mirror")
    world = dist.distributed_c10d._get_default_group()
    return [
        dist.get_process_group_ranks(group),
        group.group_desc,
        world.group_desc,
        dist.get_group_rank(group, 0),
        dist.get_global_rank(group, size - 1),
        dist.get_rank(group),
        dist.get_world_size(group),
        group.size(),
        world.rank(),
        dist.get_backend(group) == backend.rpartition(":")[2],
        bool(group.group_name),
        dist.is_initialized(),
        dist.get_pg_count(),
    ]


@script()
def sequence_numbers(rank: int, size: int, backend: str) -> Any:
    """Count collectives, as flight recorders and DDP's checks do."""
    world = dist.distributed_c10d._get_default_group()
    world._set_sequence_number_for_group()
    before = world._get_sequence_number_for_group()
    for _ in range(3):
        dist.all_reduce(torch.ones(2))
    dist.broadcast(torch.ones(2), 0)
    return world._get_sequence_number_for_group() - before


@script(bound=FLOAT_SUM)
def destroyed_and_made_again(rank: int, size: int, backend: str) -> Any:
    """End the default group and make another in the same processes, twice."""
    store = _store()
    # A rank that leaves before the others have come fails them, with Gloo too.
    dist.barrier()
    dist.destroy_process_group()
    values = []
    for incarnation in range(2):
        dist.init_process_group(
            backend,
            store=PrefixStore(f"again{incarnation}", store),
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=20),
        )
        tensor = sample(rank + incarnation, 40)
        dist.all_reduce(tensor)
        values.append(tensor)
        if incarnation == 0:
            dist.barrier()
            dist.destroy_process_group()
    return values


@script(beyond_gloo=True, limit_s=12)
def same_store_again(rank: int, size: int, backend: str) -> Any:
    """Make a second group on the first one's keys, as scripts with `env://` do."""
    store = PrefixStore("same", _store())
    dist.barrier()
    dist.destroy_process_group()
    for incarnation in range(2):
        dist.init_process_group(
            backend, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=20)
        )
        tensor = torch.full((5,), 1.0 + incarnation)
        dist.all_reduce(tensor)
        assert tensor[0].item() == size * (1 + incarnation), tensor
        if backend == "afflux":
            from afflux import statistics

            assert statistics()["engine"] == "shm", statistics()["engine"]
        if incarnation == 0:
            dist.destroy_process_group()
    return "twice"


@script(bound=FLOAT_SUM)
def subgroup_destroyed(rank: int, size: int, backend: str) -> Any:
    """End a subgroup and go on in the whole; a call in what has ended hurts nobody."""
    group = dist.new_group(list(range(size)))
    dist.all_reduce(torch.ones(2), group=group)
    dist.destroy_process_group(group)
    with contextlib.suppress(RuntimeError, ValueError):
        dist.all_reduce(torch.ones(2), group=group)
    tensor = sample(rank, 6)
    dist.all_reduce(tensor)
    return tensor


@script()
def not_a_member(rank: int, size: int, backend: str) -> Any:
    """Call in a group of others: torch warns, and nothing happens."""
    group = dist.new_group([0])
    tensor = torch.full((2,), float(rank))
    dist.all_reduce(tensor, group=group)
    return [tensor, dist.get_rank(group)]


@script(bound=FLOAT_SUM)
def for_one_device(rank: int, size: int, backend: str) -> Any:
    """Name the backend for a device, and beside another backend."""
    values = []
    name = backend.rpartition(":")[2]
    for kind in (f"cpu:{name}", f"cpu:{name},cuda:gloo"):
        group = dist.new_group(backend=kind)
        assert group is not None
        tensor = sample(rank, 10)
        dist.all_reduce(tensor, group=group)
        found: list[Any] = [None] * size
        dist.all_gather_object(found, rank, group=group)
        devices = sorted(str(each.type) for each in group._device_types)
        values.append([tensor, found, devices])
    return values


@script(bound=FLOAT_SUM)
def gloo_beside(rank: int, size: int, backend: str) -> Any:
    """Keep a Gloo group for control beside the default group."""
    control = dist.new_group(backend="gloo")
    tensor, flag = sample(rank, 30), torch.tensor([rank])
    work = dist.all_reduce(tensor, async_op=True)
    dist.all_reduce(flag, group=control)
    assert work is not None
    work.wait()
    return [tensor, flag]


@script(bound=FLOAT_SUM, ranks_min=2)
def mesh_slices(rank: int, size: int, backend: str) -> Any:
    """Slice and flatten a two-dimensional mesh, and sum along each way."""
    mesh = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("dp", "tp"))
    values: list[Any] = [mesh.get_coordinate(), mesh["tp"].size(), mesh["dp"].size()]
    for group in (mesh["dp"].get_group(), mesh["tp"].get_group()):
        tensor = sample(rank, 5)
        dist.all_reduce(tensor, group=group)
        values.append(tensor)
    flat = mesh["dp", "tp"]._flatten("all")
    tensor = sample(rank, 5)
    dist.all_reduce(tensor, group=flat.get_group())
    return [*values, tensor]


@script(bound=FLOAT_SUM)
def sixteen_groups(rank: int, size: int, backend: str) -> Any:
    """Make sixteen groups and use each."""
    groups = [dist.new_group() for _ in range(16)]
    tensors = [sample(rank + each, 5) for each in range(16)]
    for tensor, group in zip(tensors, groups, strict=True):
        dist.all_reduce(tensor, group=group)
    return tensors


@script()
def one_rank_group(rank: int, size: int, backend: str) -> Any:
    """Make a group of this rank only, on a store of its own."""
    dist.barrier()
    dist.destroy_process_group()
    dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    tensor = sample(rank, 4)
    dist.all_reduce(tensor)
    parts = [torch.empty(4)]
    dist.all_gather(parts, tensor)
    dist.barrier()
    return [tensor, parts]


@script(beyond_gloo=True)
def foreign_options(rank: int, size: int, backend: str) -> Any:
    """Pass options of no backend, by mistake."""
    answer = refusal(
        lambda: dist.new_group(pg_options=object()), RuntimeError, TypeError, ValueError
    )
    return bool(answer)


@script()
def set_timeout(rank: int, size: int, backend: str) -> Any:
    """Change a group's timeout; it is kept and has effect."""
    from torch.distributed.distributed_c10d import _get_default_group, _set_pg_timeout

    _set_pg_timeout(timedelta(seconds=33), _get_default_group())
    dist.all_reduce(torch.ones(2))
    return "set"


def _store() -> Any:
    return dist.distributed_c10d._get_default_store()
