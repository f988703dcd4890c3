"""Every collective with every type and reduction, beside exact references: right, or refused.

Values are such that sums of averages do not fit their type, and that bits of integers wrap.
"""

from fractions import Fraction

import pytest
import torch
import torch.distributed as dist

from tests.support.host.ranks import run_ranks, values

EACH = 4
"""Elements of a rank's part."""

OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (
    torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint8, torch.uint16, torch.uint32, torch.uint64,
)  # fmt: skip
COMPLEX = (torch.complex64, torch.complex128)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
MOVED = (*FLOATS, *INTEGERS, *COMPLEX, *FLOAT8, torch.bool)


def numbers(op, dtype, rank, count):
    """Return what a rank brings, as numbers of Python's."""
    if dtype is torch.bool:
        return [(k >> rank) % 2 for k in range(count)]
    if dtype.is_complex:
        return [complex(k - 5, 2 * rank - k) for k in range(count)]
    if op == "AVG":
        # The last is the largest whose average fits; integers have both ends of their range.
        info = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
        ends = [info.max, info.min, info.max, info.min if rank else 7]
        if dtype.is_floating_point:
            ends = [info.max / 2, info.min / 2, 3.0 * rank + 1, -7.0 * rank]
        else:
            ends = [end - rank if end > 7 else end + rank for end in ends]
        return (ends * count)[:count]
    low = 0 if not dtype.is_signed else -3
    return [(5 * k + 3 * rank) % 7 + low for k in range(count)]


def reduced(op, dtype, columns):
    """Return the exact results of some columns; None if there are none."""
    if dtype.is_complex:
        return {"SUM": list(map(sum, columns)), "AVG": [sum(c) / len(c) for c in columns]}.get(op)
    if dtype is torch.bool:
        return {
            "SUM": [any(c) for c in columns],
            "PRODUCT": [all(c) for c in columns],
            "MIN": [all(c) for c in columns],
            "MAX": [any(c) for c in columns],
            "BAND": [all(c) for c in columns],
            "BOR": [any(c) for c in columns],
            "BXOR": [sum(c) % 2 == 1 for c in columns],
        }.get(op)
    if op in ("BAND", "BOR", "BXOR") and dtype.is_floating_point:
        return None
    return [one(op, dtype, column) for column in columns]


def one(op, dtype, column):
    if dtype.is_floating_point:
        column = [Fraction(each) for each in column]
    first, *rest = column
    total = sum(column)
    if op == "AVG":
        if dtype.is_floating_point:
            return total / len(column)
        return abs(total) // len(column) * (-1 if total < 0 else 1)
    if op in ("SUM", "MIN", "MAX"):
        value = total if op == "SUM" else min(column) if op == "MIN" else max(column)
    else:
        value = first
        for each in rest:
            if op == "PRODUCT":
                value *= each
            else:
                value = {"BAND": value & each, "BOR": value | each, "BXOR": value ^ each}[op]
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        value = (value - info.min) % (info.max - info.min + 1) + info.min
    return value


def agrees(got, expected, dtype):
    if dtype.is_complex:
        return torch.allclose(got, torch.tensor(expected, dtype=dtype), rtol=1e-5)
    if not dtype.is_floating_point:
        # Bytes of a bool other than 0 and 1 are none.
        raw = got.view(torch.uint8) if dtype is torch.bool else got
        return raw.tolist() == expected
    bound = Fraction(1, 50 if dtype is torch.bfloat16 else 200)
    return all(
        x == x and abs(x) != float("inf") and abs(Fraction(x) - y) <= abs(y) * bound
        for x, y in zip(got.tolist(), expected, strict=True)
    )


def reductions(mine, op, rank, size, is_async):
    """Yield a name, a call, its result and the part of the whole that this must be."""
    asked = {"op": getattr(dist.ReduceOp, op), "async_op": is_async}
    part = slice(rank * EACH, (rank + 1) * EACH)
    whole = slice(None)
    strided = torch.stack([mine, mine], dim=1)[:, 0]
    plain = mine.clone()
    yield "all_reduce", lambda: dist.all_reduce(plain, **asked), plain, whole
    yield "all_reduce of a stride", lambda: dist.all_reduce(strided, **asked), strided, whole
    for number, target in enumerate((mine.clone(), torch.stack([mine, mine], dim=1)[:, 0])):
        # Only the destination's tensor changes.
        place = whole if rank == 1 else None
        yield f"reduce {number}", lambda t=target: dist.reduce(t, 1, **asked), target, place
    out, outs = torch.empty_like(mine[part]), torch.empty_like(mine[part])
    yield (
        "reduce_scatter_tensor",
        lambda: dist.reduce_scatter_tensor(out, mine.clone(), **asked),
        out,
        part,
    )
    yield (
        "reduce_scatter",
        lambda: dist.reduce_scatter(outs, list(mine.clone().chunk(size)), **asked),
        outs,
        part,
    )


def reduce_all(rank, size, is_async):
    wrong, refused = [], []
    for dtype in (*FLOATS, *INTEGERS, *COMPLEX, *FLOAT8, torch.bool):
        for op in OPS:
            if dtype in FLOAT8:
                rows = [[1.0] * (size * EACH)] * size
                expected = None
            else:
                rows = [numbers(op, dtype, each, size * EACH) for each in range(size)]
                tensors = [torch.tensor(row, dtype=dtype) for row in rows]
                columns = list(zip(*[each.tolist() for each in tensors], strict=True))
                expected = reduced(op, dtype, columns)
            mine = (
                torch.tensor(rows[rank], dtype=torch.float32).to(dtype)
                if dtype in FLOAT8
                else (tensors[rank])
            )
            for name, call, got, place in reductions(mine, op, rank, size, is_async):
                cell = f"{name} {op} {dtype}"
                try:
                    work = call()
                    if work is not None:
                        work.wait()
                except (RuntimeError, ValueError) as error:
                    refused.append(cell)
                    if expected is not None:
                        wrong.append(f"{cell}: {error}")
                    continue
                if expected is None:
                    wrong.append(f"{cell} is not refused")
                elif place is None:
                    if not torch.equal(got, mine):
                        wrong.append(f"{cell} changes another rank's tensor")
                elif not agrees(got, expected[place], dtype):
                    wrong.append(f"{cell}: {got} for {expected[place]}")
    return wrong, len(refused)


def bits(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8).tolist()


def moves(rank, size, make):
    """Yield a name, what has come, and what should have."""
    mine, all_of = make(rank), [make(each) for each in range(size)]

    def empty(*sizes):
        return torch.zeros(sizes, dtype=mine.dtype)

    got = mine.clone() if rank == 1 else empty(len(mine), 2)
    dist.broadcast(got, 1)
    yield "broadcast", got, all_of[1]
    gathered = [empty(len(mine), 2) for _ in range(size)]
    dist.all_gather(gathered, mine)
    yield "all_gather", torch.cat(gathered), torch.cat(all_of)
    whole = empty(size * len(mine), 2)
    dist.all_gather_into_tensor(whole, mine)
    yield "all_gather_into_tensor", whole, torch.cat(all_of)
    gathered = [empty(len(mine), 2) for _ in range(size)]
    dist.gather(mine, gathered if rank == 1 else None, 1)
    if rank == 1:
        yield "gather", torch.cat(gathered), torch.cat(all_of)
    got = torch.stack([empty(len(mine), 2)] * 2, dim=-1)[..., 0]
    dist.scatter(got, [make(each) for each in range(size)] if rank == 1 else None, 1)
    yield "scatter", got, mine
    # Rank r sends d + 1 rows to rank d.
    rows = [each + 1 for each in range(size)]
    sent = torch.cat([mine[:1]] * sum(rows))
    expected = torch.cat([each[:1] for each in all_of for _ in range(rank + 1)])
    got = empty(size * (rank + 1), 2)
    dist.all_to_all_single(got, sent, [rank + 1] * size, rows)
    yield "all_to_all_single", got, expected
    if mine.dim() == 2:
        got = empty(size * (rank + 1))
        work = dist.all_to_all_single(got, sent[:, 0], [rank + 1] * size, rows, async_op=True)
        work.wait()
        yield "all_to_all_single in one dimension", got, expected[:, 0]
    lists = [empty(rank + 1, 2) for _ in range(size)]
    dist.all_to_all(lists, list(sent.split(rows)))
    yield "all_to_all", torch.cat(lists), expected
    works = [dist.isend(mine[:, 0], (rank + 1) % size)]
    got = empty(len(mine))
    works.append(dist.irecv(got, (rank - 1) % size))
    for work in works:
        work.wait()
    yield "send", got, all_of[(rank - 1) % size][:, 0]
    numbers = [empty() for _ in range(size)]
    dist.gather(mine[0, 0], numbers if rank == 0 else None, 0)
    if rank == 0:
        yield "gather of numbers", torch.stack(numbers), torch.stack([x[0, 0] for x in all_of])
    nothing = [empty(0) for _ in range(size)]
    dist.gather(empty(0), nothing if rank == 0 else None, 0)


def made(rank, dtype, how):
    tensor = (torch.arange(8) % 5 + rank).to(torch.float32).to(dtype).view(4, 2)
    if dtype.is_complex:
        tensor = tensor * complex(1, rank + 1)
    if how == "strided":
        return torch.stack([tensor, tensor], dim=0).transpose(0, 1)[:, 1]
    return tensor


def move_all(rank, size):
    wrong = []
    for dtype in MOVED:
        for how in ("plain", "strided"):
            for name, got, expected in moves(rank, size, lambda r, d=dtype, h=how: made(r, d, h)):
                if bits(got) != bits(expected):
                    wrong.append(f"{name} {dtype} {how}")
    return wrong


@pytest.mark.parametrize(
    ("engine", "size", "adapter"),
    [
        ("shm://", 3, "native"),
        ("gloo://", 2, "python"),
        ("soft://", 2, "native"),
        pytest.param("shm://", 3, "python", marks=pytest.mark.long),
        pytest.param("gloo://", 2, "native", marks=pytest.mark.long),
        pytest.param("soft://", 2, "python", marks=pytest.mark.long),
    ],
)
def test_every_reduction_of_every_type(engine, size, adapter):
    environment = {"AFFLUX_AGGREGATOR": engine, "AFFLUX_ADAPTER": adapter}
    for wrong, refused in values(
        run_ranks(reduce_all, size, adapter == "python", environment=environment)
    ):
        assert not wrong, "\n".join(wrong)
        assert refused


@pytest.mark.parametrize(
    ("engine", "size", "adapter"),
    [
        ("shm://", 3, "native"),
        ("gloo://", 2, "python"),
        pytest.param("shm://", 3, "python", marks=pytest.mark.long),
        pytest.param("gloo://", 2, "native", marks=pytest.mark.long),
    ],
)
def test_every_type_moves(engine, size, adapter):
    environment = {"AFFLUX_AGGREGATOR": engine, "AFFLUX_ADAPTER": adapter}
    for wrong in values(run_ranks(move_all, size, environment=environment)):
        assert not wrong, "\n".join(wrong)
