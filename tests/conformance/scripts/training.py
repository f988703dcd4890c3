"""The steps of training loops and their libraries around the model, written out without them."""

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as post_local_sgd
from torch.distributed.algorithms.model_averaging import averagers
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tests.conformance.script import FLOAT_SUM, sample, script
from tests.conformance.scripts.data_parallel import TRAINED, net, train


@script(bound=TRAINED)
def zero_redundancy_optimizer(rank: int, size: int, backend: str) -> Any:
    """Shard the optimizer's state, and collect it at rank 0."""
    model = DDP(net())
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01
    )
    for step in range(3):
        optimizer.zero_grad()
        model(sample(rank + step, 8, 6)).square().mean().backward()
        optimizer.step()
    optimizer.consolidate_state_dict(to=0)
    state = optimizer.state_dict()["state"] if rank == 0 else {}
    moments = [state[each]["exp_avg"] for each in sorted(state)]
    return [[each.detach() for each in model.parameters()], moments]


@script(bound=TRAINED)
def post_local_sgd_optimizer(rank: int, size: int, backend: str) -> Any:
    """Average gradients first, parameters every second step later."""
    model = DDP(net())
    alone = [dist.new_group([each]) for each in range(size)][rank]
    state = post_local_sgd.PostLocalSGDState(None, alone, start_localSGD_iter=2)
    model.register_comm_hook(state, post_local_sgd.post_localSGD_hook)
    optimizer = PostLocalSGDOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        averagers.PeriodicModelAverager(period=2, warmup_steps=2),
    )
    for step in range(5):
        optimizer.zero_grad()
        model(sample(rank + step, 8, 6)).square().mean().backward()
        optimizer.step()
    return [each.detach() for each in model.parameters()]


@script(bound=TRAINED)
def model_averaging(rank: int, size: int, backend: str) -> Any:
    """Train apart and average parameters every second step."""
    model = net()
    averager = averagers.PeriodicModelAverager(period=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        model(sample(rank + step, 8, 6)).square().mean().backward()
        optimizer.step()
        averager.average_parameters(model.parameters())
    return [each.detach() for each in model.parameters()]


@script(bound=FLOAT_SUM)
def gather_for_metrics(rank: int, size: int, backend: str) -> Any:
    """Gather predictions of an uneven last batch in inference mode, as Accelerate does."""
    rows = 3 + rank
    with torch.inference_mode():
        predictions = sample(rank, rows, 4)
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
        dist.all_gather(lengths, torch.tensor([rows]))
        longest = int(max(lengths))
        padded = torch.zeros(longest, 4)
        padded[:rows] = predictions
        whole = torch.empty(longest * size, 4)
        dist.all_gather_into_tensor(whole, padded)
        labels: list[Any] = [None] * size
        dist.all_gather_object(labels, [f"label {rank}.{row}" for row in range(rows)])
        parts = whole.split(longest)
        cut = torch.cat([part[: int(n)] for part, n in zip(parts, lengths, strict=True)])
    return [cut.clone(), labels]


@script(beyond_gloo=True)
def sync_dist(rank: int, size: int, backend: str) -> Any:
    """Average metrics over ranks, floats and counts, as Lightning's `sync_dist=True` does."""
    with torch.no_grad():
        loss, correct = torch.tensor(0.5 + rank), torch.tensor(10 + 2 * rank)
        dist.barrier()
        for value in (loss, correct):
            dist.all_reduce(value, op=dist.ReduceOp.AVG)
    assert loss.item() == sum(0.5 + each for each in range(size)) / size, loss
    assert correct.item() == sum(10 + 2 * each for each in range(size)) // size, correct
    return [loss, correct]


@script(bound=TRAINED)
def uneven_last_batch(rank: int, size: int, backend: str) -> Any:
    """Train an epoch whose last batch is smaller, weighting the loss by the global count."""
    data = TensorDataset(sample(0, 6 * size + 1, 6), sample(1, 6 * size + 1, 4))
    sampler: DistributedSampler[Any] = DistributedSampler(data, size, rank, shuffle=True, seed=4)
    model = DDP(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=4, sampler=sampler):
            count = torch.tensor(float(len(x)))
            dist.all_reduce(count)
            optimizer.zero_grad()
            loss = (model(x) - y).square().sum() * size / count
            loss.backward()
            optimizer.step()
    return [each.detach() for each in model.parameters()]


@script(bound=TRAINED)
def gradients_by_hand(rank: int, size: int, backend: str) -> Any:
    """Average gradients one by one, and flattened into one, without DDP."""
    model = net()
    model(sample(rank, 8, 6)).square().mean().backward()
    grads = [each.grad for each in model.parameters() if each.grad is not None]
    flat = torch.cat([each.flatten() for each in grads])
    works = [dist.all_reduce(each, async_op=True) for each in grads]
    for work in works:
        assert work is not None
        work.wait()
    dist.all_reduce(flat)
    return [[each / size for each in grads], flat / size]


@script(bound=TRAINED)
def early_stopping(rank: int, size: int, backend: str) -> Any:
    """Agree by a flag when one rank wants to stop, and on the best epoch."""
    model = DDP(net())
    epochs = 0
    for epoch in range(10):
        epochs += 1
        train(model, rank, steps=1)
        stop = torch.tensor(int(rank == size - 1 and epoch == 2))
        dist.all_reduce(stop, op=dist.ReduceOp.MAX)
        if stop:
            break
    best = torch.tensor([0.5 - rank, float(rank)])
    everything = [torch.empty(2) for _ in range(size)]
    dist.all_gather(everything, best)
    return [epochs, min(everything, key=lambda each: float(each[0]))]


@script(bound=TRAINED)
def backward_hooks(rank: int, size: int, backend: str) -> Any:
    """Sum each gradient as soon as it is there, from autograd's own thread."""
    model = net()
    works: list[Any] = []

    def hook(parameter: torch.Tensor) -> None:
        works.append(dist.all_reduce(parameter.grad, async_op=True))

    for each in model.parameters():
        each.register_post_accumulate_grad_hook(hook)
    model(sample(rank, 8, 6)).square().mean().backward()
    for work in works:
        work.wait()
    return [each.grad for each in model.parameters()]


@script(bound=1e-5)
def adam_and_ema(rank: int, size: int, backend: str) -> Any:
    """Train with Adam and a scheduler, keep an average of weights, share it."""
    model = DDP(net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)
    average = torch.optim.swa_utils.AveragedModel(model.module)
    for step in range(4):
        optimizer.zero_grad()
        model(sample(rank + step, 8, 6)).square().mean().backward()
        optimizer.step()
        schedule.step()
        average.update_parameters(model.module)
    for each in average.parameters():
        dist.broadcast(each.data, 0)
    return [each.detach() for each in average.parameters()]
