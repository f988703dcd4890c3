"""Tensors that are not plain: views, odd sizes, lazy signs, subclasses, float8."""

from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parameter import Parameter

from tests.conformance.script import FLOAT_SUM, refusal, sample, script


@script(bound=FLOAT_SUM)
def dense_view(rank: int, size: int, backend: str) -> Any:
    """Sum a transposed matrix, which has its elements in one piece."""
    base = sample(rank, 8, 6)
    dist.all_reduce(base.t())
    return base


@script(bound=FLOAT_SUM, beyond_gloo=True)
def strided_view(rank: int, size: int, backend: str) -> Any:
    """Sum a column of a matrix: right, with its neighbours untouched, or refused.

    Gloo takes it, and writes on the neighbours.
    """
    whole = sample(rank, 8, 6)
    column = whole[:, 1]
    if _taken_or_refused(lambda: dist.all_reduce(column)) == "taken":
        torch.testing.assert_close(column, sum(sample(each, 8, 6)[:, 1] for each in range(size)))
    neighbours = [0, 2, 3, 4, 5]
    assert torch.equal(whole[:, neighbours], sample(rank, 8, 6)[:, neighbours])
    return "right"


@script()
def strided_broadcast(rank: int, size: int, backend: str) -> Any:
    """Broadcast and gather views that are not contiguous."""
    view = sample(rank, 6, 4).t()
    answers = [_taken_or_refused(lambda: dist.broadcast(view, 0)), view.contiguous()]
    mine = sample(rank, 6, 4).t()
    parts = [torch.empty(4, 6) for _ in range(size)]
    answers += [_taken_or_refused(lambda: dist.all_gather(parts, mine)), parts]
    return answers


@script()
def expanded_tensor(rank: int, size: int, backend: str) -> Any:
    """Pass an expanded tensor, by mistake; the group goes on."""
    tensor = torch.ones(1).expand(5)
    if _taken_or_refused(lambda: dist.all_reduce(tensor)) == "taken":
        assert tensor.eq(size).all(), tensor
    after = torch.ones(3)
    dist.all_reduce(after)
    return after


@script()
def empty_tensor(rank: int, size: int, backend: str) -> Any:
    """Sum, broadcast and gather tensors without elements."""
    tensors = [torch.empty(0), torch.empty(3, 0, dtype=torch.int64)]
    for tensor in tensors:
        dist.all_reduce(tensor)
        dist.broadcast(tensor, 0)
    parts = [torch.empty(0) for _ in range(size)]
    dist.all_gather(parts, torch.empty(0))
    return [tensors, parts]


@script(bound=FLOAT_SUM)
def scalar_tensor(rank: int, size: int, backend: str) -> Any:
    """Sum, broadcast and gather a tensor without dimensions, such as a loss."""
    loss = torch.tensor(1.25 + rank)
    dist.all_reduce(loss)
    chosen = torch.tensor(rank)
    dist.broadcast(chosen, size - 1)
    parts = [torch.tensor(0.0) for _ in range(size)]
    dist.all_gather(parts, torch.tensor(2.5 * rank))
    stacked = torch.empty(size)
    dist.all_gather_into_tensor(stacked, torch.tensor([3.5 * rank]))
    return [loss, chosen, parts, stacked]


@script(bound=FLOAT_SUM)
def conjugated_view(rank: int, size: int, backend: str) -> Any:
    """Sum a tensor that is conjugated only in name, which torch refuses."""
    conjugated = sample(rank, 12, dtype=torch.complex64).conj()
    return [_taken_or_refused(lambda: dist.all_reduce(conjugated)), conjugated.resolve_conj()]


@script(bound=FLOAT_SUM, beyond_gloo=True)
def negated_view(rank: int, size: int, backend: str) -> Any:
    """Sum a tensor that is negated only in name: right, or refused. Gloo forgets the sign."""
    negated = torch._neg_view(sample(rank, 12))
    if _taken_or_refused(lambda: dist.all_reduce(negated)) == "taken":
        expected = torch.zeros(12) - sum(sample(each, 12) for each in range(size))
        torch.testing.assert_close(negated.resolve_neg(), expected)
    return "right"


@script()
def boolean_mask(rank: int, size: int, backend: str) -> Any:
    """Gather, broadcast and combine masks."""
    mask = sample(rank, 30, dtype=torch.bool)
    parts = [torch.empty_like(mask) for _ in range(size)]
    dist.all_gather(parts, mask)
    shared = mask.clone()
    dist.broadcast(shared, 0)
    summed = mask.clone()
    answer = _taken_or_refused(lambda: dist.all_reduce(summed, op=dist.ReduceOp.MAX))
    return [parts, shared, answer]


@script()
def float8_tensor(rank: int, size: int, backend: str) -> Any:
    """Move float8, as quantised weights are: right, or refused; a sum is refused."""
    tensor = sample(rank, 40).to(torch.float8_e4m3fn)
    whole = tensor.clone()
    if _taken_or_refused(lambda: dist.broadcast(whole, 0)) == "taken":
        expected = sample(0, 40).to(torch.float8_e4m3fn)
        assert torch.equal(whole.view(torch.uint8), expected.view(torch.uint8))
    summed = _taken_or_refused(lambda: dist.all_reduce(tensor.clone()))
    as_bytes = tensor.view(torch.uint8)
    parts = [torch.empty_like(as_bytes) for _ in range(size)]
    dist.all_gather(parts, as_bytes)
    return [summed, parts]


class Tagged(torch.Tensor):
    """A tensor with a class of its own, as libraries make them; nothing else differs."""


@script(bound=FLOAT_SUM)
def tensor_subclass(rank: int, size: int, backend: str) -> Any:
    """Sum a subclass of Tensor, a Parameter and a buffer."""
    tagged = sample(rank, 9).as_subclass(Tagged)
    dist.all_reduce(tagged)
    parameter = Parameter(sample(rank, 9))
    dist.all_reduce(parameter.data)
    with torch.no_grad():
        dist.all_reduce(parameter)
    return [tagged.as_subclass(torch.Tensor), parameter.detach(), type(tagged).__name__]


@script(bound=FLOAT_SUM)
def leaf_with_gradient(rank: int, size: int, backend: str) -> Any:
    """Sum a tensor that wants a gradient, outside no_grad; then its gradient."""
    weight = sample(rank, 5).requires_grad_()
    answer = _taken_or_refused(lambda: dist.all_reduce(weight))
    (weight.detach() * weight).sum().backward()
    assert weight.grad is not None
    dist.all_reduce(weight.grad)
    return [answer, weight.grad]


@script()
def tensor_on_meta(rank: int, size: int, backend: str) -> Any:
    """Pass a tensor on another device, by mistake; the group goes on."""
    _taken_or_refused(lambda: dist.all_reduce(torch.ones(2, device="meta")))
    after = torch.ones(3)
    dist.all_reduce(after)
    return after


@script()
def one_storage(rank: int, size: int, backend: str) -> Any:
    """Sum slices of one storage, with offsets, one after the other."""
    base = sample(rank, 100, dtype=torch.int32)
    for start, end in ((0, 7), (7, 50), (93, 100)):
        dist.all_reduce(base[start:end])
    return base


@script()
def not_a_tensor(rank: int, size: int, backend: str) -> Any:
    """Pass a list or a number, by mistake; the group goes on."""
    answers = [
        refusal(lambda: dist.all_reduce([torch.ones(1)]), TypeError),
        refusal(lambda: dist.broadcast(3, 0), TypeError),
    ]
    after = torch.ones(2)
    dist.all_reduce(after)
    return [answers, after]


@script()
def wrong_sizes(rank: int, size: int, backend: str) -> Any:
    """Pass an output that does not fit, at every rank; the group goes on."""
    answers = [
        refusal(
            lambda: dist.all_gather_into_tensor(torch.empty(size * 3 + 1), torch.ones(3)),
            RuntimeError,
            ValueError,
        ),
        refusal(
            lambda: dist.all_gather([torch.empty(3)] * (size + 1), torch.ones(3)),
            RuntimeError,
            ValueError,
        ),
    ]
    after = torch.ones(2)
    dist.all_reduce(after)
    return [len(answers), after]


def _taken_or_refused(action: Any) -> str:
    """Say what became of a call that some backends refuse: then all must."""
    try:
        action()
    except (RuntimeError, ValueError):
        return "refused"
    return "taken"
