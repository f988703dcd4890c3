"""The C++ worker: correctly rounded sums, on the C++ engine and on the golden one."""

from contextlib import ExitStack
from itertools import cycle, product

import numpy as np
import pytest

from afflux_drivers.aggregator.engine import SoftEngine
from afflux_drivers.collective import Reduction
from afflux_drivers.control.client import create_job
from afflux_hdl.contract import wire
from afflux_sim.golden.engine import GoldenEngine
from afflux_sim.golden.reductions import reduce_numbers
from tests.scenarios.golden_device import GoldenDevice
from tests.support.drivers.ranks import Ranks
from tests.support.drivers.served import Served
from tests.support.drivers.virtual_job import Fate, VirtualJob, at_random, counters_of
from tests.support.golden_tensors import BITS, KINDS, bits_of, draw, reductions

FLOATS = ("float32", "float16", "bfloat16")
OPERATIONS = [(dtype, reduction) for dtype in FLOATS for reduction in reductions(dtype)]


class NarrowEngine(GoldenEngine):
    """Its slots keep few bits, so that most blocks come again."""

    def __init__(self, **options):
        super().__init__(windows={1: 33, 2: 25, 3: 25}, **options)


def engine_of(name):
    if name == "soft":
        return SoftEngine()
    engine_class = GoldenEngine if name == "golden" else NarrowEngine
    return GoldenDevice(workers=64, lanes=16, jobs=8, slots=512, engine_class=engine_class)


def tensors_of(rng, kind, dtype, count, ranks):
    return [draw(rng, kind, dtype, count) for _ in range(ranks)]


def expected(tensors, dtype, reduction):
    columns = [bits_of(tensor, dtype).tolist() for tensor in tensors]
    return np.array(reduce_numbers(columns, dtype, reduction), dtype=BITS[dtype])


def check(job, tensors, dtype, reduction, **options):
    right = expected(tensors, dtype, reduction)
    results = job.all_reduce(tensors, wire.Dtype[dtype.upper()], Reduction(reduction), **options)
    for rank, result in enumerate(results):
        wrong = np.flatnonzero(bits_of(result, dtype) != right)
        assert not wrong.size, f"rank {rank}: {wrong[:10]}"


# Of the golden engines some kinds in every run: the soft one equals them, frame by frame.
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(
            name,
            kind,
            marks=() if name == "soft" or kind in ("mixed", "special") else pytest.mark.long,
        )
        for name, kind in product(("soft", "golden", "narrow"), KINDS)
    ],
)
def test_every_operation(name, kind):
    rng = np.random.default_rng(11)
    job = VirtualJob(3, lanes=4, slots=3, engine=engine_of(name))
    for dtype, reduction in OPERATIONS:
        for count in (0, 1, 65, 700) if name == "soft" else (65, 200):
            tensors = tensors_of(rng, kind, dtype, count, 3)
            check(job, [x.copy() for x in tensors], dtype, reduction)
            check(job, [x.copy() for x in tensors], dtype, reduction, in_place=True)


@pytest.mark.parametrize("ranks", [1, 2, 5, 16])
def test_numbers_of_ranks_and_bits_that_are_lost(ranks):
    rng = np.random.default_rng(ranks)
    job = VirtualJob(ranks, lanes=2, slots=2, engine=engine_of("soft"))
    for dtype, reduction, kind in (
        ("float32", "sum", "mixed"),
        ("bfloat16", "avg", "mixed"),
        ("float16", "sum", "special"),
        ("float32", "max", "special"),
    ):
        fates = at_random(ranks, 0.05, 0.05, 0.02)
        tensors = tensors_of(rng, kind, dtype, 1000, ranks)
        check(job, tensors, dtype, reduction, fates=fates)


def test_integers_are_as_ever():
    job = VirtualJob(2, lanes=3, slots=2, engine=engine_of("soft"))
    rng = np.random.default_rng(5)
    for count in (0, 3, 128, 129, 900):
        tensors = [draw(rng, "dense", "int32", count) for _ in range(2)]
        whole = np.stack(tensors).astype(np.int64)
        for reduction, right in (
            ("sum", whole.sum(axis=0)),
            ("max", whole.max(axis=0)),
            ("min", whole.min(axis=0)),
        ):
            results = job.all_reduce(tensors, wire.Dtype.INT32, Reduction(reduction))
            for result in results:
                assert np.array_equal(result, right.astype(np.int32))


def test_many_blocks_come_again_in_pieces():
    """More than one operation brings them; each is lost and doubled on its way, too."""
    rng = np.random.default_rng(9)
    job = VirtualJob(2, lanes=16, slots=8, engine=engine_of("soft"))
    exponents = rng.integers(-120, 120, (2, 1500 * 64))
    tensors = [np.ldexp(rng.standard_normal(e.size), e).astype(np.float32) for e in exponents]
    fates = cycle([Fate.DELIVER] * 19 + [Fate.LOSE, Fate.DOUBLE])
    check(job, tensors, "float32", "sum", fates=fates)
    # Of 1,500 blocks nearly all: two operations more, and one after each lost bit.
    assert job.sessions[0].number >= 3


def test_small_tensors_take_one_round_trip():
    job = VirtualJob(4, lanes=5, slots=2, engine=engine_of("soft"))
    rng = np.random.default_rng(1)
    for dtype, count in (("float32", 64), ("float16", 128), ("bfloat16", 1)):
        before = counters_of(job.engine)["rounds"]
        check(job, tensors_of(rng, "mixed", dtype, count, 4), dtype, "sum")
        assert counters_of(job.engine)["rounds"] == before + 1


def test_half_floats_take_half_the_blocks():
    job = VirtualJob(2, lanes=5, slots=8, engine=engine_of("soft"))
    rng = np.random.default_rng(1)
    blocks = {}
    for dtype in FLOATS:
        before = counters_of(job.engine)["blocks_accepted"]
        check(job, tensors_of(rng, "dense", dtype, 64 * 200, 2), dtype, "sum")
        blocks[dtype] = counters_of(job.engine)["blocks_accepted"] - before
    # The opening round has one block of a rank.
    assert blocks == {"float32": 402, "float16": 202, "bfloat16": 202}


@pytest.mark.parametrize(("aggregators", "loss"), [(1, 0.02), (3, 0.0)])
def test_over_sockets(no_threads_left, aggregators, loss):
    """The product's worker on the product's server; some blocks of each tensor come again."""
    rng = np.random.default_rng(aggregators)
    with ExitStack() as ending:
        tickets = []
        for _ in range(aggregators):
            served = Served(SoftEngine())
            ending.callback(served.stop)
            lease = create_job(served.address, 3, 5, 8, 5.0)
            ending.callback(lease.close)
            tickets.append(lease.ticket)
        ranks = ending.enter_context(Ranks(*tickets, loss=loss))
        for dtype, reduction in OPERATIONS:
            for kind, count in (("mixed", 1000), ("special", 4001), ("mixed", 20)):
                tensors = tensors_of(rng, kind, dtype, count, 3)
                right = expected(tensors, dtype, reduction)
                results = ranks.all_reduce(tensors, wire.Dtype[dtype.upper()], Reduction(reduction))
                for result in results:
                    assert isinstance(result, np.ndarray), result
                    assert np.array_equal(bits_of(result, dtype), right), (dtype, reduction, kind)
        worker = ranks.workers[0]
        assert worker.statistics.operations == 3 * len(OPERATIONS)
        # Operations beyond those have brought blocks again.
        assert worker._loop.lines[0].session.number > 3 * len(OPERATIONS)
