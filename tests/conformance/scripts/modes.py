"""Collectives under torch's modes: inference, no_grad, fake tensors, tracing, deterministic."""

from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.conformance.script import FLOAT_SUM, sample, script


@script(bound=FLOAT_SUM)
def inference_mode(rank: int, size: int, backend: str) -> Any:
    """Evaluate: gather, sum, scatter and exchange objects in inference mode."""
    with torch.inference_mode():
        total = sample(rank, 10)
        dist.all_reduce(total)
        parts = [torch.empty(4) for _ in range(size)]
        dist.all_gather(parts, sample(rank, 4))
        whole = torch.empty(4 * size)
        dist.all_gather_into_tensor(whole, sample(rank, 4))
        mine = torch.empty(4)
        dist.reduce_scatter_tensor(mine, whole)
        found: list[Any] = [None] * size
        dist.all_gather_object(found, rank)
        dist.broadcast(mine, 0)
        dist.barrier()
    return [each.clone() for each in (total, *parts, whole, mine)] + found


@script(bound=FLOAT_SUM)
def inference_mode_async(rank: int, size: int, backend: str) -> Any:
    """Start in inference mode, wait outside it."""
    with torch.inference_mode():
        total, parts = sample(rank, 10), [torch.empty(4) for _ in range(size)]
        works = [
            dist.all_reduce(total, async_op=True),
            dist.all_gather(parts, sample(rank, 4), async_op=True),
        ]
    for work in works:
        assert work is not None
        work.wait()
    return [total.clone(), [each.clone() for each in parts]]


@script(bound=FLOAT_SUM)
def no_grad(rank: int, size: int, backend: str) -> Any:
    """Sum and gather without gradients, results that go on into a graph."""
    weight = sample(rank, 6).requires_grad_()
    with torch.no_grad():
        mean = weight.detach().clone()
        dist.all_reduce(mean)
        mean /= size
    ((weight - mean) ** 2).sum().backward()
    return [mean, weight.grad]


@script()
def fake_tensor_mode(rank: int, size: int, backend: str) -> Any:
    """Trace shapes with fake tensors: a sum of nothing, not a crash."""
    with FakeTensorMode():
        tensor = torch.ones(4, 4)
        dist.all_reduce(tensor)
        parts = [torch.empty(4) for _ in range(size)]
        dist.all_gather(parts, torch.ones(4))
    real = torch.ones(2)
    dist.all_reduce(real)
    return [list(tensor.shape), type(tensor).__name__, real]


class Recorder(TorchDispatchMode):
    """Notes the names of c10d's operations that pass the dispatcher."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note it and go on."""
        if func.namespace == "c10d":
            self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@script()
def dispatch_mode(rank: int, size: int, backend: str) -> Any:
    """See collectives in a dispatch mode, as profilers and checkers of memory do."""
    with Recorder() as seen:
        dist.all_reduce(torch.ones(3))
        dist.broadcast(torch.ones(3), 0)
        dist.all_gather_into_tensor(torch.empty(3 * size), torch.ones(3))
        dist.barrier()
    return seen.names


@script()
def make_fx_keeps_all_reduce(rank: int, size: int, backend: str) -> Any:
    """Trace a function with make_fx: its all_reduce is in the graph."""
    from torch.fx.experimental.proxy_tensor import make_fx

    def step(x: torch.Tensor) -> torch.Tensor:
        doubled = x * 2
        dist.all_reduce(doubled)
        return doubled + 1

    graph = make_fx(step)(torch.ones(4))
    called = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
    return [name for name in called if "c10d" in name or "allreduce" in name]


@script(bound=FLOAT_SUM)
def autocast(rank: int, size: int, backend: str) -> Any:
    """Sum what autocast made, in bfloat16, and the loss."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        product = sample(0, 4, 4) @ sample(1, 4, 4)
        dist.all_reduce(product, op=dist.ReduceOp.MAX)
        loss = product.float().sum()
        dist.all_reduce(loss)
    return [product, loss]


@script()
def default_dtype_and_determinism(rank: int, size: int, backend: str) -> Any:
    """Ask for determinism and another default type; both hold in the collective."""
    torch.use_deterministic_algorithms(True)
    torch.set_default_dtype(torch.float64)
    try:
        tensor = torch.full((5,), rank + 0.5)
        dist.all_reduce(tensor)
        return tensor
    finally:
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)


@script()
def same_bits_twice(rank: int, size: int, backend: str) -> Any:
    """Repeat a sum: the same bits, at every rank."""
    sums = [sample(rank, 5000) for _ in range(3)]
    for tensor in sums:
        dist.all_reduce(tensor)
    parts = [torch.empty_like(sums[0]) for _ in range(size)]
    dist.all_gather(parts, sums[0])
    return all(torch.equal(sums[0], each) for each in (*sums, *parts))
