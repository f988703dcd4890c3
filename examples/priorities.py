"""Priorities: gradients of the first layers overtake, as the next forward pass needs them first.

    torchrun --nproc-per-node 2 examples/priorities.py

prints

    order: 0.weight, 0.bias, 2.weight, 2.bias
    a step waited … ms for gradients
    loss 0.62, then 0.01
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import afflux

dist.init_process_group("afflux")
rank, size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
inputs = torch.randn(64, 10)
targets = inputs.sum(1, keepdim=True) / 3
model = DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(10, 100), torch.nn.ReLU(), torch.nn.Linear(100, 1))
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
# optimizer.step() then returns at once: a parameter's step is taken when it is next used.
priorities = afflux.hooks.Priorities(model, optimizer, fuse_bytes=1)
model.register_comm_hook(priorities, afflux.hooks.priorities_hook)

losses = []
for _ in range(100):
    optimizer.zero_grad()
    loss = (model(inputs[rank::size]) - targets[rank::size]).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

priorities.flush()
if rank == 0:
    found = priorities.statistics()
    print(f"order: {', '.join(each.text for each in priorities.messages)}")
    print(f"a step waited {found['exposed_s'] / found['rounds'] * 1e3:.2f} ms for gradients")
    print(f"loss {losses[0]:.2f}, then {losses[-1]:.2f}")
priorities.close()
dist.destroy_process_group()
