"""A scheme of your own: each rank gives the sign of every element, times the mean magnitude.

    torchrun --nproc-per-node 2 examples/own_scheme.py

prints

    loss 0.91, then 0.00

Error feedback comes from the scheme: what `take` leaves in the tensor is added to the next step's.
An installed package gives it a word, for AFFLUX_SCHEME, by an entry point (docs/schemes.md).
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import afflux


class Signs(afflux.hooks.Compressor):
    """One bit for each element, and one number (F. Seide et al., Interspeech 2014)."""

    word = "signs"

    def take(
        self, tensor: torch.Tensor, average: torch.Tensor, group: dist.ProcessGroup | None
    ) -> None:
        """Give the signs, and leave the difference."""
        average.copy_(tensor.sign() * tensor.abs().mean())
        tensor.sub_(average)
        dist.all_reduce(average, dist.ReduceOp.AVG, group)

    def volume(self, elements: int, ranks: int) -> float:
        """Return the bytes that a rank sends: these sums are of float32."""
        return 4.0 * elements


dist.init_process_group("afflux")
rank, size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
inputs = torch.randn(64, 10)
targets = inputs.sum(1, keepdim=True) / 3
model = DistributedDataParallel(torch.nn.Linear(10, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
afflux.hooks.register(model, Signs())

losses = []
for _ in range(60):
    optimizer.zero_grad()
    loss = (model(inputs[rank::size]) - targets[rank::size]).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

if rank == 0:
    print(f"loss {losses[0]:.2f}, then {losses[-1]:.2f}")
dist.destroy_process_group()
