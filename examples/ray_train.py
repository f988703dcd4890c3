"""Ray Train: its workers are the ranks.

    pip install 'ray[train]'
    python examples/ray_train.py

prints

    2 processes, backend afflux, by shm
    loss 0.91, then 0.00
"""

import ray
import torch
import torch.distributed as dist
from ray.train import ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model

import afflux
from afflux.registration import register


def train() -> None:
    """Train at one worker."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    inputs = torch.randn(64, 10)
    targets = inputs.sum(1, keepdim=True) / 3
    model = prepare_model(torch.nn.Linear(10, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = (model(inputs[rank::size]) - targets[rank::size]).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if rank == 0:
        engine = afflux.statistics()["engine"]
        print(f"{size} processes, backend {dist.get_backend()}, by {engine}")
        print(f"loss {losses[0]:.2f}, then {losses[-1]:.2f}")


if __name__ == "__main__":
    # Workers make the group before they import this script: the hook registers the backend there.
    ray.init(num_cpus=2, runtime_env={"worker_process_setup_hook": register})
    trainer = TorchTrainer(
        train,
        torch_config=TorchConfig(backend="afflux"),
        scaling_config=ScalingConfig(num_workers=2),
    )
    trainer.fit()
