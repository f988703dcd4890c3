"""The results of all_reduce: right values, for every dtype, shape and layout, in place."""

import numpy as np
import pytest
import torch
import torch.distributed as dist

import afflux
from tests.support.host.ranks import caught, run_ranks, values

pytestmark = pytest.mark.usefixtures("engine")

OPS = {
    "sum": dist.ReduceOp.SUM,
    "avg": dist.ReduceOp.AVG,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
}
SHAPES = [(), (0,), (1,), (3, 4), (64,), (65,), (0, 5), (1000, 3), (17, 1, 1023)]


def made(shape, dtype, rank):
    generator = torch.Generator().manual_seed(1000 * rank + len(shape))
    if dtype == torch.int32:
        return torch.randint(-1000, 1000, shape, generator=generator, dtype=dtype)
    return torch.randn(shape, generator=generator).to(dtype)


def expected(shape, dtype, size, name):
    stack = torch.stack([made(shape, dtype, rank) for rank in range(size)]).double()
    match name:
        case "sum":
            return stack.sum(0)
        case "avg":
            return stack.mean(0)
        case "max":
            return stack.amax(0)
        case _:
            return stack.amin(0)


def reduce_everything(rank, size):
    results = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32):
        for shape in SHAPES:
            for name, op in OPS.items():
                if name == "avg" and dtype == torch.int32:
                    continue
                tensor = made(shape, dtype, rank)
                address = tensor.data_ptr()
                dist.all_reduce(tensor, op=op)
                assert tensor.data_ptr() == address
                results.append(
                    (
                        dtype,
                        shape,
                        name,
                        tensor.view(torch.uint8).numpy().tobytes()
                        if tensor.numel() and tensor.dim()
                        else tensor.double().numpy().tobytes(),
                        tensor.double().numpy(),
                    )
                )
    return results


@pytest.mark.parametrize("size", [1, pytest.param(2, marks=pytest.mark.long), 3])
def test_values_and_equal_bits(size):
    per_rank = values(run_ranks(reduce_everything, size))
    for results in zip(*per_rank, strict=True):
        dtype, shape, name, bits, result = results[0]
        assert {each[3] for each in results} == {bits}, f"{dtype} {shape} {name}: other bits"
        exact = expected(shape, dtype, size, name).numpy()
        if dtype == torch.int32 or name in ("max", "min"):
            tolerance = 0.0
        else:
            # Half a unit of the result, and the quantum of blocks whose maximum is below 8.
            tolerance = {torch.float32: 2**-22, torch.float16: 2**-9, torch.bfloat16: 2**-6}[dtype]
        np.testing.assert_allclose(result, exact, rtol=tolerance, atol=8 * tolerance * 2**-3)


def reduce_layouts(rank, size):
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6) + 100 * rank
    transposed = base.clone().t()
    dist.all_reduce(transposed)
    strided = base.clone()[:, ::2]
    dist.all_reduce(strided)
    whole = base.clone()
    part = whole[1:3, 2:4]
    dist.all_reduce(part)
    channels_last = base.clone().reshape(1, 2, 3, 4).contiguous(memory_format=torch.channels_last)
    dist.all_reduce(channels_last)
    return [each.clone().numpy() for each in (transposed, strided, whole, channels_last)]


def test_non_contiguous_tensors():
    for got in values(run_ranks(reduce_layouts, 2)):
        base = np.arange(24, dtype=np.float32).reshape(4, 6)
        both = 2 * base + 100
        np.testing.assert_array_equal(got[0], both.T)
        np.testing.assert_array_equal(got[1], both[:, ::2])
        np.testing.assert_array_equal(got[2][1:3, 2:4], both[1:3, 2:4])
        np.testing.assert_array_equal(got[3], both.reshape(1, 2, 3, 4))


def reduce_negated(rank, _size):
    negated = torch.complex(torch.ones(3), torch.ones(3)).conj().imag
    message, kind, _ = caught(lambda: dist.all_reduce(negated))
    resolved = negated.resolve_neg()
    dist.all_reduce(resolved)
    return kind, message, resolved.tolist()


def test_a_lazily_negated_tensor_is_refused_as_torch_would_lose_its_result():
    for kind, message, resolved in values(run_ranks(reduce_negated, 2)):
        assert kind == "ValueError"
        assert "resolve_neg()" in message
        assert resolved == [-2, -2, -2]


def keep_the_rest(rank, _size):
    whole = torch.full((6, 6), float(rank))
    dist.all_reduce(whole[2:4, 2:4])
    return whole.numpy()


def test_leaves_the_rest_of_a_view_alone():
    for rank, whole in enumerate(values(run_ranks(keep_the_rest, 2))):
        inside = np.zeros((6, 6), bool)
        inside[2:4, 2:4] = True
        assert (whole[inside] == 1).all()
        assert (whole[~inside] == rank).all()


SPECIAL = [
    float("nan"), float("inf"), float("-inf"), 1e-45, -1e-45, 1.17549435e-38, 3.4028235e38,
    -3.4028235e38, -0.0, 0.0, 1.0,
]  # fmt: skip


def reduce_special(rank, size, name, count):
    tensor = torch.zeros(count)
    n = len(SPECIAL)
    pairs = torch.tensor([(a, b) for a in SPECIAL for b in SPECIAL])
    tensor[: n * n] = pairs[:, rank % 2]
    if rank > 1:
        tensor.zero_()
    dist.all_reduce(tensor, op=OPS[name])
    return tensor[: n * n].numpy()


# In one phase, and through the ring.
@pytest.mark.parametrize("count", [121, 20_000])
def test_sums_of_special_values(count):
    pairs = np.array([(a, b) for a in SPECIAL for b in SPECIAL], dtype=np.float32)
    with np.errstate(all="ignore"):
        want = pairs[:, 0] + pairs[:, 1]
    want[np.isnan(want)] = np.nan
    for got in values(run_ranks(reduce_special, 2, "sum", count)):
        np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_of_special_values(name):
    for got in values(run_ranks(reduce_special, 2, name, 121)):
        pairs = np.array([(a, b) for a in SPECIAL for b in SPECIAL], dtype=np.float32)
        want = np.maximum(*pairs.T) if name == "max" else np.minimum(*pairs.T)
        np.testing.assert_array_equal(got, want)


def reduce_few_exactly(rank, _size):
    tensor = torch.tensor([2.0**-149, 2.0**127, -(2.0**100), 1.0])
    if rank == 1:
        tensor = torch.tensor([2.0**-149, -(2.0**127), 2.0**-100, 2.0**-30])
    dist.all_reduce(tensor)
    return tensor.numpy()


def test_few_elements_are_summed_exactly():
    want = np.array([2.0**-148, 0, np.float32(2.0**-100 - 2.0**100), 1 + 2.0**-30], np.float32)
    for got in values(run_ranks(reduce_few_exactly, 2)):
        np.testing.assert_array_equal(got, want)


def reduce_sparsely(rank, size):
    tensor = torch.zeros(300_000)
    tensor[rank * 1000 : rank * 1000 + 10] = 1.0 + rank
    dist.all_reduce(tensor)
    return tensor.nonzero().flatten().numpy(), tensor.sum().item(), afflux.statistics()


def test_zero_blocks_are_skipped(engine):
    for where, total, numbers in values(run_ranks(reduce_sparsely, 3)):
        np.testing.assert_array_equal(
            where, np.concatenate([np.arange(1000 * rank, 1000 * rank + 10) for rank in range(3)])
        )
        assert total == 10 * (1 + 2 + 3)
        if engine == "shm":
            # Ten elements may lie across the edge of a block.
            assert 1 <= numbers["blocks_present"] <= 2
            assert numbers["blocks_total"] == -(-300_000 // 64)
        else:
            assert numbers["bytes_sent"] < 300_000 * 4 / 4
