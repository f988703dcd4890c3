"""Functional and differentiable collectives, eager and compiled."""

from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable

from tests.conformance.script import FLOAT_SUM, sample, script


def _world() -> dist.ProcessGroup:
    return dist.distributed_c10d._get_default_group()


@script(bound=FLOAT_SUM)
def functional_eager(rank: int, size: int, backend: str) -> Any:
    """Call each functional collective."""
    group, mine = _world(), sample(rank, 4 * size)
    found = [
        functional.all_reduce(mine, "sum", group),
        functional.all_reduce(mine, "max", group),
        functional.all_gather_tensor(mine, 0, group),
        functional.reduce_scatter_tensor(mine, "sum", 0, group),
        functional.all_to_all_single(mine, None, None, group),
        functional.broadcast(mine, 0, group),
        *functional.all_reduce_coalesced([mine, mine * 2], "sum", group),
        *functional.all_gather_into_tensor_coalesced([mine, mine * 2], group),
        *functional.reduce_scatter_tensor_coalesced([mine, mine * 2], "sum", [0, 0], group),
    ]
    return [functional.wait_tensor(each).clone() for each in found]


@script(bound=FLOAT_SUM)
def functional_average(rank: int, size: int, backend: str) -> Any:
    """Average by the functional collectives, as DTensor does."""
    found = functional.all_reduce(sample(rank, 6), "avg", _world())
    return functional.wait_tensor(found).clone()


@script(bound=FLOAT_SUM)
def async_tensor_in_all_reduce(rank: int, size: int, backend: str) -> Any:
    """Pass a result that is still to come to the plain collectives."""
    pending = functional.all_reduce(sample(rank, 8), "sum", _world())
    dist.all_reduce(pending)
    other = functional.all_reduce(sample(rank, 8), "sum", _world())
    parts = [torch.empty(8) for _ in range(size)]
    dist.all_gather(parts, other)
    return [functional.wait_tensor(pending).clone() + 0, parts]


@script(bound=FLOAT_SUM)
def differentiable_collectives(rank: int, size: int, backend: str) -> Any:
    """Differentiate through all_reduce, all_gather, reduce_scatter, broadcast and all_to_all."""
    gradients = []

    def through(call: Any, *shape: int) -> None:
        x = sample(rank, *shape).requires_grad_()
        out = call(x)
        out = torch.cat(list(out)) if isinstance(out, (tuple, list)) else out
        (out * torch.arange(1.0, 1 + out.numel()).view(out.shape)).sum().backward()
        gradients.append([out.detach(), x.grad])

    through(differentiable.all_reduce, 5)
    through(differentiable.all_gather, 5)
    through(lambda x: differentiable.broadcast(x, 0), 5)
    through(lambda x: differentiable.reduce_scatter(torch.empty(3), list(x.chunk(size))), 3 * size)
    through(lambda x: differentiable.all_to_all_single(torch.empty_like(x), x), 2 * size)
    return gradients


@script(bound=FLOAT_SUM)
def differentiable_functional(rank: int, size: int, backend: str) -> Any:
    """Differentiate through the functional all_gather and reduce_scatter."""
    gradients = []
    for call in (
        lambda x: functional.all_gather_tensor_autograd(x, 0, _world()),
        lambda x: functional.reduce_scatter_tensor_autograd(x, "sum", 0, _world()),
        lambda x: functional.all_to_all_single_autograd(x, None, None, _world()),
    ):
        x = sample(rank, 2 * size).requires_grad_()
        out = functional.wait_tensor(call(x))
        (out * torch.arange(1.0, 1 + out.numel())).sum().backward()
        gradients.append([out.detach().clone(), x.grad])
    return gradients


@script(bound=FLOAT_SUM)
def contrastive_loss(rank: int, size: int, backend: str) -> Any:
    """Gather features with gradients and compute a loss over all, as CLIP does."""
    x = sample(rank, 3, 4).requires_grad_()
    whole = torch.cat(differentiable.all_gather(x))
    loss = torch.logsumexp(x @ whole.t(), dim=1).mean()
    loss.backward()
    return [loss.detach(), x.grad]


@script(bound=FLOAT_SUM)
def compiled_functional(rank: int, size: int, backend: str) -> Any:
    """Compile a function with functional collectives, without a break of the graph."""
    group = _world()

    def step(x: torch.Tensor) -> torch.Tensor:
        total = functional.all_reduce(x * 2, "sum", group)
        return functional.all_gather_tensor(total + 1, 0, group) * 3

    return _compiled(step)(sample(rank, 4)).clone()


@script(bound=FLOAT_SUM)
def compiled_plain(rank: int, size: int, backend: str) -> Any:
    """Compile a function with the plain all_reduce, which dynamo rewrites."""

    def step(x: torch.Tensor) -> torch.Tensor:
        doubled = x * 2
        dist.all_reduce(doubled)
        return doubled + 1

    return _compiled(step)(sample(rank, 4)).clone()


@script(bound=FLOAT_SUM)
def compiled_with_work(rank: int, size: int, backend: str) -> Any:
    """Compile a function that starts, computes and waits; the graph may break."""

    def step(x: torch.Tensor) -> torch.Tensor:
        doubled = x * 2
        work = dist.all_reduce(doubled, async_op=True)
        other = x + 1
        assert work is not None
        work.wait()
        return doubled + other

    return _compiled(step, whole=False)(sample(rank, 4)).clone()


def _compiled(step: Any, whole: bool = True) -> Any:
    # Without the C++ compiler, which takes seconds and does not matter here.
    torch._dynamo.reset()
    return torch.compile(step, backend="aot_eager", fullgraph=whole)
