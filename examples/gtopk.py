"""gTop-k: a step sends the largest hundredth of the gradients; ranks keep the rest for later steps.

    torchrun --nproc-per-node 2 examples/gtopk.py

prints

    3 of 210 gradients in a step
    loss 0.54, then 0.00
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import afflux

dist.init_process_group("afflux")
rank, size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
inputs = torch.randn(64, 20)
targets = inputs[:, :10] / 2
model = DistributedDataParallel(torch.nn.Linear(20, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
# Without the words, AFFLUX_SCHEME chooses: AFFLUX_SCHEME="gtopk:density=0.01".
afflux.hooks.register(model, "gtopk:density=0.01")

losses = []
for _ in range(400):
    optimizer.zero_grad()
    loss = (model(inputs[rank::size]) - targets[rank::size]).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

if rank == 0:
    gradients = torch.cat(
        [each.grad.flatten() for each in model.parameters() if each.grad is not None]
    )
    print(f"{gradients.count_nonzero()} of {len(gradients)} gradients in a step")
    print(f"loss {losses[0]:.2f}, then {losses[-1]:.2f}")
dist.destroy_process_group()
