"""Checkpoints: saving, loading and resharding, states of models and optimizers."""

import shutil
import tempfile
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

from tests.conformance.script import sample, script
from tests.conformance.scripts.data_parallel import TRAINED, net


def _folder() -> str:
    """Return a folder that all ranks know; rank 0 removes it."""
    found: list[Any] = [tempfile.mkdtemp(prefix="afflux-") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found, src=0)
    return str(found[0])


def _remove(folder: str) -> None:
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder)


def _trained(rank: int, size: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = net()
    fully_shard(model, mesh=init_device_mesh("cpu", (size,)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(2):
        optimizer.zero_grad()
        model(sample(rank + step, 8, 6)).square().mean().backward()
        optimizer.step()
    return model, optimizer


@script(bound=TRAINED)
def checkpoint_save_and_load(rank: int, size: int, backend: str) -> Any:
    """Save a sharded model and its optimizer, load both into new ones."""
    folder = _folder()
    model, optimizer = _trained(rank, size)
    states = get_state_dict(model, optimizer)
    dcp.save({"model": states[0], "optimizer": states[1]}, checkpoint_id=folder)
    other, its = _trained(rank + 7, size)
    states = get_state_dict(other, its)
    found = {"model": states[0], "optimizer": states[1]}
    dcp.load(found, checkpoint_id=folder)
    set_state_dict(other, its, model_state_dict=found["model"], optim_state_dict=found["optimizer"])
    _remove(folder)
    return [each.full_tensor().detach() for each in other.parameters()]


@script(bound=TRAINED)
def checkpoint_async(rank: int, size: int, backend: str) -> Any:
    """Save in the background, in a thread that uses a group of its own, and train on."""
    folder = _folder()
    model, _ = _trained(rank, size)
    state = {"model": get_model_state_dict(model)}
    group = dist.new_group(backend=f"cpu:{backend.rpartition(':')[2]}")
    saved = dcp.async_save(state, checkpoint_id=folder, process_group=group)
    tensor = sample(rank, 100)
    dist.all_reduce(tensor)
    saved.result()
    other = net(9)
    fully_shard(other, mesh=init_device_mesh("cpu", (size,)))
    found = {"model": get_model_state_dict(other)}
    dcp.load(found, checkpoint_id=folder)
    _remove(folder)
    return [each.full_tensor().detach() for each in found["model"].values()]


@script(bound=TRAINED)
def state_dict_full(rank: int, size: int, backend: str) -> Any:
    """Collect a whole state at rank 0 and give it to a new model by broadcast."""
    model, _ = _trained(rank, size)
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=options)
    other = net(9)
    fully_shard(other, mesh=init_device_mesh("cpu", (size,)))
    set_model_state_dict(
        other,
        state if rank == 0 else {},
        options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
    )
    loaded = [each.full_tensor().detach() for each in other.parameters()]
    return [sorted(state) if rank == 0 else None, loaded]


@script(bound=TRAINED)
def checkpoint_by_rank_zero(rank: int, size: int, backend: str) -> Any:
    """Save at rank 0 with torch.save, meet, and load everywhere."""
    folder = _folder()
    model = DDP(net(rank))
    model(sample(rank, 8, 6)).square().mean().backward()
    if rank == 0:
        torch.save(model.state_dict(), f"{folder}/model.pt")
    dist.barrier()
    state = torch.load(f"{folder}/model.pt", map_location="cpu")
    model.load_state_dict(state)
    _remove(folder)
    return [each.detach() for each in model.parameters()]
