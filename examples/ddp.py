"""DistributedDataParallel: the backend's name is the only change to a script that runs on Gloo.

    torchrun --nproc-per-node 2 examples/ddp.py

prints

    step 0: loss 0.91
    step 20: loss 0.01
    step 40: loss 0.00
    ranks have equal weights: True
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import afflux  # noqa: F401 - registers the backend; torch from 2.14 on finds it by itself

dist.init_process_group("afflux")
rank, size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
inputs = torch.randn(64, 10)
targets = inputs.sum(1, keepdim=True) / 3
model = DistributedDataParallel(torch.nn.Linear(10, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for step in range(41):
    optimizer.zero_grad()
    # Each rank has its share of the rows; DDP averages the gradients.
    loss = (model(inputs[rank::size]) - targets[rank::size]).square().mean()
    loss.backward()
    optimizer.step()
    if rank == 0 and step % 20 == 0:
        print(f"step {step}: loss {loss.item():.2f}")

weights = [torch.empty(1, 10) for _ in range(size)]
dist.all_gather(weights, model.module.weight.detach())
if rank == 0:
    print(f"ranks have equal weights: {all(torch.equal(each, weights[0]) for each in weights)}")
dist.destroy_process_group()
