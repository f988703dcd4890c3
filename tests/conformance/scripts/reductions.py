"""The results of all_reduce: each operation, each type, and refusals."""

from typing import Any

import torch
import torch.distributed as dist

from tests.conformance.script import FLOAT_SUM, refusal, sample, script

_INTEGERS = (torch.uint8, torch.int8, torch.int32, torch.int64)


@script(bound=FLOAT_SUM)
def all_reduce_sum(rank: int, size: int, backend: str) -> Any:
    """Sum small and large tensors, in place."""
    tensors = [sample(rank, count) for count in (1, 31, 1000, 100_003)]
    for tensor in tensors:
        dist.all_reduce(tensor)
    return tensors


@script(bound=FLOAT_SUM)
def all_reduce_double(rank: int, size: int, backend: str) -> Any:
    """Sum float64, as losses and metrics are."""
    tensor = sample(rank, 1000, dtype=torch.float64)
    dist.all_reduce(tensor)
    return tensor


@script(bound=1e-2)
def all_reduce_half(rank: int, size: int, backend: str) -> Any:
    """Sum float16 and bfloat16."""
    tensors = [sample(rank, 1000, dtype=dtype) for dtype in (torch.float16, torch.bfloat16)]
    for tensor in tensors:
        dist.all_reduce(tensor)
    return tensors


@script()
def all_reduce_integers(rank: int, size: int, backend: str) -> Any:
    """Sum integers of each width exactly, large ones too."""
    tensors = [sample(rank, 300, dtype=dtype) for dtype in _INTEGERS]
    tensors.append(torch.tensor([2**52 + rank, -(2**61) - rank, 7]))
    for tensor in tensors:
        dist.all_reduce(tensor)
    return tensors


@script()
def all_reduce_max_min(rank: int, size: int, backend: str) -> Any:
    """Find maxima and minima of floats and integers."""
    values = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16, *_INTEGERS):
        for op in (dist.ReduceOp.MAX, dist.ReduceOp.MIN):
            tensor = sample(rank, 200, dtype=dtype)
            dist.all_reduce(tensor, op=op)
            values.append(tensor)
    return values


@script(bound=FLOAT_SUM)
def all_reduce_product(rank: int, size: int, backend: str) -> Any:
    """Multiply floats and integers."""
    values = [sample(rank, 50), sample(rank, 50, dtype=torch.int64)]
    for tensor in values:
        dist.all_reduce(tensor, op=dist.ReduceOp.PRODUCT)
    return values


@script()
def all_reduce_bitwise(rank: int, size: int, backend: str) -> Any:
    """Combine masks with AND, OR and XOR."""
    values = []
    for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        for dtype in (torch.int32, torch.int64, torch.uint8):
            tensor = sample(rank, 40, dtype=dtype)
            dist.all_reduce(tensor, op=op)
            values.append(tensor)
    return values


@script(bound=FLOAT_SUM, beyond_gloo=True)
def all_reduce_average(rank: int, size: int, backend: str) -> Any:
    """Average floats."""
    tensor = sample(rank, 500)
    dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
    expected = torch.stack([sample(each, 500) for each in range(size)]).mean(0)
    torch.testing.assert_close(tensor, expected)
    return tensor


@script(beyond_gloo=True)
def all_reduce_average_integers(rank: int, size: int, backend: str) -> Any:
    """Average integers as NCCL does: the sum, divided towards zero."""
    for values in ([7, -7, 9, 0], [2**40, -(2**40), 1, -1]):
        tensor = torch.tensor(values) + rank
        dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
        total = size * torch.tensor(values) + sum(range(size))
        expected = torch.div(total, size, rounding_mode="trunc")
        assert torch.equal(tensor, expected), f"{tensor} instead of {expected}"
    return "averaged"


@script()
def premultiplied_sum_is_refused(rank: int, size: int, backend: str) -> Any:
    """Ask for PREMUL_SUM, which is NCCL's own."""
    op = dist._make_nccl_premul_sum(2.0)
    return refusal(lambda: dist.all_reduce(torch.ones(3), op=op), RuntimeError, ValueError)


@script(bound=FLOAT_SUM)
def complex_sum(rank: int, size: int, backend: str) -> Any:
    """Sum complex numbers; their maximum does not exist."""
    tensor = sample(rank, 60, dtype=torch.complex64)
    dist.all_reduce(tensor)
    greatest = refusal(
        lambda: dist.all_reduce(tensor.clone(), op=dist.ReduceOp.MAX), RuntimeError, ValueError
    )
    return [tensor, greatest]


@script()
def special_values(rank: int, size: int, backend: str) -> Any:
    """Sum infinities and what is not a number, as a loss scaler looks for."""
    tensor = torch.zeros(64)
    tensor[rank] = float("inf")
    tensor[10] = float("nan") if rank == 0 else 1.0
    tensor[20] = float("inf") if rank else float("-inf")
    dist.all_reduce(tensor)
    return tensor


@script()
def found_inf(rank: int, size: int, backend: str) -> Any:
    """Share a loss scaler's flag by MAX."""
    flag = torch.full((1,), 1.0 if rank == size - 1 else 0.0)
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return flag.item()


@script(bound=FLOAT_SUM)
def sparse_tensor(rank: int, size: int, backend: str) -> Any:
    """Sum sparse COO tensors whose indices differ."""
    indices = torch.tensor([[0, rank + 1, 7]])
    values = sample(rank, 3, 4)
    tensor = torch.sparse_coo_tensor(indices, values, (10, 4))
    dist.all_reduce(tensor)
    return tensor.coalesce().to_dense()


@script()
def negative_zero_and_subnormal(rank: int, size: int, backend: str) -> Any:
    """Sum numbers at the lower end of float32 against nothing."""
    tensor = torch.tensor([1e-40, -1e-44, 1.17e-38, 0.0]) * (1 if rank == 0 else 0)
    dist.all_reduce(tensor)
    return tensor
