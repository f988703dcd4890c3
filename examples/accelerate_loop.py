"""Accelerate: make the group first; Accelerate takes the group that is there.

    pip install accelerate
    torchrun --nproc-per-node 2 examples/accelerate_loop.py

prints

    2 processes, backend afflux
    loss 1.23, then 0.00
"""

import torch
import torch.distributed as dist
from accelerate import Accelerator

import afflux  # noqa: F401 - registers the backend

dist.init_process_group("afflux")
accelerator = Accelerator(cpu=True)

torch.manual_seed(0)
inputs = torch.randn(64, 10)
targets = inputs.sum(1, keepdim=True) / 3
data = torch.utils.data.TensorDataset(inputs, targets)
model = torch.nn.Linear(10, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(data, batch_size=16)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

losses = []
for _ in range(20):
    for x, y in loader:
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        losses.append(accelerator.reduce(loss.detach(), "mean").item())

accelerator.print(f"{accelerator.num_processes} processes, backend {dist.get_backend()}")
accelerator.print(f"loss {losses[0]:.2f}, then {losses[-1]:.2f}")
# Destroys the group.
accelerator.end_training()
