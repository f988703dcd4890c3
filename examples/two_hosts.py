"""DistributedDataParallel on two hosts, with an aggregator on the first that asks for a secret.

    (umask 077; openssl rand -hex 32 > afflux.secret)
    afflux serve soft --host 10.0.0.1 --secret-file afflux.secret &
    export AFFLUX_AGGREGATOR=udp://10.0.0.1:4700 AFFLUX_SECRET_FILE=afflux.secret
    torchrun --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 examples/two_hosts.py

on the first host, at 10.0.0.1, prints

    sums by a soft engine at udp://10.0.0.1:4700
    loss 0.91, then 0.00

The second host has a copy of the secret, of mode 600, and runs the last two lines with
`--node-rank 1`. Without an aggregator and a secret, only torchrun's line is needed: then the hosts
share the sums.
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
model = DistributedDataParallel(torch.nn.Linear(10, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

losses = []
for _ in range(60):
    optimizer.zero_grad()
    loss = (model(inputs[rank::size]) - targets[rank::size]).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

if rank == 0:
    found = afflux.statistics()
    print(f"sums by a {found['engine']} engine at {found['aggregator']}")
    print(f"loss {losses[0]:.2f}, then {losses[-1]:.2f}")
dist.destroy_process_group()
