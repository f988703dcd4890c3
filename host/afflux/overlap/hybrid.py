"""Groups for hybrid parallelism: some ranks share a model, and several such sets share the data."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from afflux.overlap.groups import timeout_of

__all__ = ["hybrid_mesh"]


def hybrid_mesh(*, model: int, data: int | None = None, device_type: str = "cpu") -> DeviceMesh:
    """Return a mesh with the dimensions "data" and "model" over all ranks. Collective.

        mesh = afflux.hybrid_mesh(model=2)
        ddp = DistributedDataParallel(part, device_mesh=mesh["data"])   # gradients of this part
        dist.all_reduce(activations, group=mesh.get_group("model"))     # within a copy of the model

    Ranks that share a model are consecutive, hence mostly on one host. The groups have the backend
    and the timeout of the default group, which must exist.

    Args:
        model: Ranks that share a copy of the model.
        data: Copies of the model; None for as many as there are ranks for.
        device_type: Of the mesh.

    Raises:
        ValueError: The ranks cannot be shared out so.
    """
    ranks = dist.get_world_size()
    if model < 1 or ranks % model:
        raise ValueError(
            f"model is {model}: the {ranks} ranks cannot be divided into copies of the model of "
            f"{model} ranks each"
        )
    if data is not None and data * model != ranks:
        raise ValueError(
            f"data is {data}, and model {model}: that is {data * model} ranks, and there are "
            f"{ranks}"
        )
    # The default backend, with the default group's limit: torch's own way has torch's limit.
    numbers = torch.arange(ranks).view(-1, model)
    groups = [
        dist.new_subgroups_by_enumeration(each.tolist(), timeout=timeout_of(None))[0]
        for each in (numbers.t(), numbers)
    ]
    return DeviceMesh.from_group(
        groups, device_type, mesh=numbers, mesh_dim_names=("data", "model")
    )
