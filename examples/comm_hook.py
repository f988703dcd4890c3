"""A communication hook: the job keeps its backend, here Gloo, and Afflux averages the gradients.

    torchrun --nproc-per-node 2 examples/comm_hook.py

prints

    default group: gloo
    loss 0.91, then 0.01
    sums by Afflux: 20
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import afflux

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
inputs = torch.randn(64, 10)
targets = inputs.sum(1, keepdim=True) / 3
model = DistributedDataParallel(torch.nn.Linear(10, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

group = dist.new_group(backend="afflux")
model.register_comm_hook(group, afflux.ddp_hook)

losses = []
for _ in range(20):
    optimizer.zero_grad()
    loss = (model(inputs[rank::size]) - targets[rank::size]).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

if rank == 0:
    print(f"default group: {dist.get_backend()}")
    print(f"loss {losses[0]:.2f}, then {losses[-1]:.2f}")
    print(f"sums by Afflux: {afflux.statistics(group)['operations_engine']}")
dist.destroy_process_group()
