"""The data of `afflux bench`, the sums that they are checked against, and the processor's time."""

import subprocess
import sys

import pytest
import torch

from afflux.commands.bench.catalogue import COLLECTIVES
from afflux.commands.bench.collectives import prepare, result_inputs
from afflux.commands.bench.cpu_time import CpuTimer
from afflux.commands.bench.expected import wrong_elements
from afflux.commands.bench.inputs import DTYPES, PIECE, Inputs
from afflux_sim.golden.reductions import all_reduce


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=list(DTYPES))
def test_inputs_are_the_same_for_whoever_asks(dtype):
    inputs = Inputs(PIECE + 100, dtype, ranks=3, density=0.1)
    filled = torch.empty(inputs.count, dtype=dtype)
    inputs.fill(1, filled)
    pieces = list(inputs.pieces())
    assert [piece.stop - piece.start for piece in pieces] == [PIECE, 100]
    for piece in pieces:
        assert torch.equal(filled[piece], inputs.piece(1, piece))
    assert not torch.equal(inputs.piece(0, pieces[0]), inputs.piece(1, pieces[0]))
    whole = filled[:PIECE].view(-1, inputs.block)
    share = (whole != 0).any(dim=1).double().mean().item()
    assert 0.08 < share < 0.12
    # A block is zero or, but for a few values that happen to be 0, not.
    assert ((whole != 0).sum(dim=1) > inputs.block // 2).double().mean().item() == share


def test_sums_in_place_stop_before_they_overflow():
    for dtype in DTYPES.values():
        for ranks in (2, 3, 8, 64):
            inputs = Inputs(256, dtype, ranks)
            pieces = [inputs.piece(rank, slice(0, 256)).double() for rank in range(ranks)]
            tensor = torch.stack(pieces).sum(0)
            for _ in range(inputs.calls_in_place("sum") - 1):
                tensor = tensor * ranks
            about = torch.finfo if dtype.is_floating_point else torch.iinfo
            most = about(dtype).max
            assert tensor.abs().max() <= most, (dtype, ranks)
    assert Inputs(256, torch.float32, 8).calls_in_place("avg") == 0
    assert Inputs(256, torch.float32, 8, density=0.5).calls_in_place("avg") == 1


def golden_sum(inputs, op):
    names = {torch.float32: "float32", torch.float16: "float16", torch.int32: "int32"}
    where = slice(0, inputs.count)
    parts = [inputs.piece(rank, where).numpy() for rank in range(inputs.ranks)]
    return torch.from_numpy(all_reduce(parts, names[inputs.dtype], op).copy())


@pytest.mark.parametrize("op", ["sum", "avg", "max", "min"])
@pytest.mark.parametrize("count", [1, 70, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32])
def test_the_check_lets_right_results_through(dtype, count, op):
    if dtype == torch.int32 and op == "avg":
        return
    inputs = Inputs(count, dtype, ranks=3)
    right = golden_sum(inputs, op)
    assert wrong_elements(right, inputs, op, of_engine=True) == 0


def test_the_check_sees_one_bit_where_the_golden_model_looks():
    inputs = Inputs(9000, torch.float32, ranks=3)
    right = golden_sum(inputs, "sum")
    assert wrong_elements(right, inputs, "sum", of_engine=True) == 0
    for place in (0, 4095, 8999):
        wrong = right.clone()
        wrong.view(torch.int32)[place] += 1
        assert wrong_elements(wrong, inputs, "sum", of_engine=True) == 1, place


@pytest.mark.parametrize(
    "spoil",
    [
        lambda part, x: x + part,  # counted twice
        lambda part, x: x - part,  # left out
        lambda part, x: torch.full_like(x, float("nan")),
        *(
            pytest.param(wrong, marks=pytest.mark.long)
            for wrong in (
                lambda part, x: torch.zeros_like(x),
                lambda part, x: torch.full_like(x, float("inf")),
                lambda part, x: -x,
            )
        ),
    ],
    ids=["twice", "lost", "nan", "zero", "inf", "negative"],
)
def test_the_check_sees_wrong_sums_between_the_ends(spoil):
    inputs = Inputs(20_000, torch.float32, ranks=4)
    middle = slice(9_984, 9_984 + 64)
    wrong = golden_sum(inputs, "sum")
    part = inputs.piece(2, slice(0, inputs.count))[middle]
    wrong[middle] = spoil(part, wrong[middle])
    assert wrong_elements(wrong, inputs, "sum", of_engine=True) >= 64 - 1


def test_the_check_sees_what_a_zero_block_must_not_hold():
    inputs = Inputs(20_000, torch.float32, ranks=2, density=0.01)
    right = golden_sum(inputs, "sum")
    zero = int((right.view(-1)[9_984:10_048] == 0).all())
    assert zero, "chosen so that it is"
    right[10_000] = 1e-40
    assert wrong_elements(right, inputs, "sum", of_engine=True) == 1


def test_the_check_of_others_knows_their_rounding():
    inputs = Inputs(5000, torch.float32, ranks=8)
    where = slice(0, inputs.count)
    total = inputs.piece(0, where)
    for rank in range(1, 8):
        total = total + inputs.piece(rank, where)
    assert wrong_elements(total, inputs, "sum", of_engine=False) == 0
    assert wrong_elements(total * (1 + 1e-4), inputs, "sum", of_engine=False) > 4900


class Idle:
    """A contender whose calls do nothing, as every rank of a broken one's would."""

    name = "idle"
    of_engine = True
    empty = staticmethod(lambda count, dtype: torch.empty(count, dtype=dtype))
    all_reduce = broadcast = all_gather = reduce_scatter = staticmethod(lambda *_: None)
    barrier = staticmethod(lambda: None)


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("name", ["all_reduce", "broadcast", "all_gather", "reduce_scatter"])
def test_a_collective_that_does_nothing_is_seen(name, in_place):
    inputs = Inputs(1000, torch.float32, ranks=3)
    trial = prepare(COLLECTIVES[name], Idle(), inputs, "sum", 1, in_place)
    assert trial.wrong() > 900


def test_parts_of_a_reduce_scatter_are_checked():
    inputs = Inputs(128, torch.int64, ranks=2)
    trial = prepare(COLLECTIVES["reduce_scatter"], Idle(), inputs, "sum", 1, in_place=False)
    parts = [result_inputs(inputs, 1).piece(rank, slice(0, 128)) for rank in range(2)]
    trial.restore()
    assert torch.equal(trial.source[128:], parts[1])
    trial.result.copy_(parts[0] + parts[1])
    assert trial.check() == 0
    trial.result[5] += 1 << 40
    assert trial.check() == 1


def test_processor_time_counts_children():
    timer = CpuTimer()
    timer.prepare()
    timer.start()
    busy = subprocess.Popen(
        [sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass\ninput()"],
        stdin=subprocess.PIPE,
    )
    try:
        for _ in range(500):
            if timer.stop() > 0.3:
                break
            with pytest.raises(subprocess.TimeoutExpired):
                busy.wait(0.02)
        # Of this process a little, of the child most.
        assert timer.stop() > 0.3
    finally:
        busy.communicate()
