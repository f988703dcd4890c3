"""A sparse embedding: ranks sum only the rows that a batch has used, not the whole table.

    torchrun --nproc-per-node 2 examples/sparse_embedding.py

prints

    the gradient has 4 of 100000 rows
    rows: [3, 5, 7, 99999]
    a rank received 320 of 6400000 bytes of values
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import afflux

dist.init_process_group("afflux")
rank = dist.get_rank()

torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Embedding(100_000, 16, sparse=True))
optimizer = torch.optim.SparseAdam(model.parameters())

words = torch.tensor([[3, 5, 3], [5, 7, 99_999]])[rank % 2]
model(words).square().mean().backward()
optimizer.step()

gradient = model.module.weight.grad.coalesce()
if rank == 0:
    (found,) = afflux.statistics()["sparse"].values()
    print(f"the gradient has {len(gradient.values())} of {len(gradient)} rows")
    print(f"rows: {gradient.indices()[0].tolist()}")
    dense = gradient.numel() * gradient.element_size()
    print(f"a rank received {found['value_bytes']} of {dense} bytes of values")
dist.destroy_process_group()
